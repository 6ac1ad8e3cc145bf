// The hardware profiles that the daemon knows, fetched once.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { rpc } from "./api";
import { t } from "./i18n";
import type { Profile } from "./types";

export const profiles = signal<Profile[]>([]);

export function useProfiles() {
  useEffect(() => {
    if (profiles.value.length === 0) rpc<{ profiles: Profile[] }>("DeviceService/ListProfiles").then((r) => (profiles.value = r.profiles), () => {});
  }, []);
}

export const titleOf = (hardware: string) => (hardware === "" ? t("this machine") : (profiles.value.find((p) => p.name === hardware)?.title ?? hardware));
