#!/usr/bin/env bash
# root.sh DIR: a minimal Debian root with systemd and what the packages of BUILD need, made once and kept.
# Needs root and debootstrap; the mirror is the one this machine's own apt uses.
set -euo pipefail
dir=$1
[ -f "$dir/.made" ] && exit 0
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' | awk '$2 == "bookworm" && $3 == "main" {print $1; exit}')
[ -n "$mirror" ] || { echo "no Debian 12 mirror among apt's sources"; exit 77; }
rm -rf "$dir"; mkdir -p "$dir"
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,adduser,libvulkan1,mesa-vulkan-drivers \
  bookworm "$dir" "$mirror" > "$dir.log" 2>&1 || { tail -5 "$dir.log"; exit 1; }
touch "$dir/.made"
