#!/usr/bin/env bash
# The Python wheel: built from a copy of the source, installed into a fresh environment, used from there.
# usage: wheel.sh BUILD_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d) daemon=
trap '[ -z "$daemon" ] || kill $daemon 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/src"
cp -r "$here/../../sdk" "$here/../../proto" "$work/src/"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps -w "$work/wheels" "$work/src/sdk/python"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$work"/wheels/rumbo-*.whl
"$build/tests/fake_rumbod" --socket "$work/s.sock" 2>/dev/null & daemon=$!
for _ in $(seq 500); do [ -S "$work/s.sock" ] && break; sleep 0.01; done
cd "$work"
said=$(RUMBO_SOCKET=$work/s.sock "$work/venv/bin/python" -c '
import rumbo
with rumbo.Client.connect() as client:
    print(client.chat("hello", "hi").answer().text)
')
[ "$said" = "Hello, world" ] || { echo "FAIL  said \"$said\""; exit 1; }
echo "ok    $(basename "$work"/wheels/rumbo-*.whl)"
