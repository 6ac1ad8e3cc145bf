#!/usr/bin/env python3
"""llama.cpp's worker on a Vulkan device, inside its sandbox: the software renderer, which is used only where it is named."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, MODELS, SKIP, Daemon  # noqa: E402

SOFTWARE = "software-llvmpipe"


def main():
    model = MODELS / "smollm2.gguf"
    packs = [p for p in (BIN / "engines").glob("llamacpp-*/PACK") if "vulkan" in p.read_text()]
    icd = pathlib.Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json")
    if not model.exists() or not packs or not icd.exists():
        print("no demo model, no pack with Vulkan, or no llvmpipe")
        return SKIP
    os.environ["VK_DRIVER_FILES"] = os.environ["VK_ICD_FILENAMES"] = str(icd)
    with Daemon(http=False) as d:
        names = [x["id"] for x in d.json("devices")["devices"]]
        assert SOFTWARE in names, names
        d.cli("import", model, "--name", "m")
        chosen = d.json("plan", "m")["chosen"]
        assert chosen["devices"] == ["cpu0"] and chosen["backend"] == "cpu", chosen  # never by itself
        d.cli("load", "m", "--device", SOFTWARE, "--context", 512, "--sessions", 1, timeout=300)
        instance = d.instances()[0]
        assert instance["backend"] == "vulkan" and instance["devices"] == [SOFTWARE], instance
        pid = instance["pid"]
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status
        assert "libvulkan_lvp" in pathlib.Path(f"/proc/{pid}/maps").read_text(), "the worker has not loaded the renderer"
        text = d.cli("run", "m", "--max-tokens", 2, "--temperature", 0, "Hello", timeout=800).stdout
        assert text.strip(), "no answer"
        findings = {f["code"]: f for f in json.loads(d.cli("doctor", "--json", check=False).stdout)["findings"]}
        assert "llamacpp (vulkan) runs with" in findings["sandbox.level"]["text"], findings
        assert findings.get("sandbox.denied", {}).get("severity") != "broken", findings
        print("answered from inside:", findings["sandbox.level"]["text"])
        if "sandbox.denied" in findings:
            print("and did without:", findings["sandbox.denied"]["text"])
    return 0


sys.exit(main())
