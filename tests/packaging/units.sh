#!/usr/bin/env bash
# The units as systemd's own tools judge them: they parse, and the exposure level stays low. usage: units.sh BUILD_DIR
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "systemd-analyze is not there"; exit 77; }
root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
DESTDIR=$root cmake --install "$1" --prefix /usr --component daemon >/dev/null
# verify looks whether the programs that the units name are there.
mkdir -p "$root/bin" "$root/lib/systemd/system"; printf '#!/bin/sh\n' > "$root/bin/sh"; chmod 755 "$root/bin/sh"
for target in sysinit basic shutdown sockets multi-user; do printf '[Unit]\nDefaultDependencies=no\n' > "$root/lib/systemd/system/$target.target"; done
said=$(systemd-analyze verify --man=no --root="$root" "$root/usr/lib/systemd/system/rumbo.service" "$root/usr/lib/systemd/system/rumbo.socket" 2>&1 | grep -i 'rumbo\.' || true)
[ -z "$said" ] || { echo "FAIL  $said"; exit 1; }
echo "ok    systemd-analyze verify"
said=$(systemd-analyze security --offline=yes --root="$root" --no-pager "$root/usr/lib/systemd/system/rumbo.service" 2>&1)
score=$(printf '%s' "$said" | sed -n 's/.*Overall exposure level[^:]*: \([0-9.]*\).*/\1/p')
awk -v s="$score" 'BEGIN { exit !(s != "" && s <= 3.0) }' || { printf '%s\n' "$said" | tail -5; echo "FAIL  exposure level $score is above 3.0"; exit 1; }
echo "ok    exposure level $score (limit 3.0)"
