#!/usr/bin/env bash
# ./dev demo: starts a daemon of its own, imports the demo model, plans it, streams an answer, explains it, stops.
# With RUMBO_DEMO_DIR it works there and keeps what it made; otherwise in a temporary folder that goes.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/build/release/bin
deps=${RUMBO_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/rumbo-dev}
dir=${RUMBO_DEMO_DIR:-$(mktemp -d)}
mkdir -p "$dir"
export RUMBO_SOCKET=$dir/rumbo.sock

bold() { printf '\n\033[1m%s\033[0m\n' "$*"; }
stop() {
  [ -z "${daemon:-}" ] || { kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null; } || true
  [ -n "${RUMBO_DEMO_DIR:-}" ] || rm -rf "$dir"
}
trap stop EXIT

bold "rumbod starts"
"$bin/rumbod" --socket "$RUMBO_SOCKET" --http 127.0.0.1:0 --state-dir "$dir/state" --cache-dir "$dir/cache" 2> "$dir/log" &
daemon=$!
for _ in $(seq 100); do
  "$bin/rumbo" status > /dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || { cat "$dir/log"; exit 1; }
  sleep 0.05
done
"$bin/rumbo" status

bold "What this machine has"
"$bin/rumbo" devices

bold "A real model comes in, by the hash of its content"
"$bin/rumbo" import "$deps/models/smollm2.gguf" --name smollm2

bold "Where would it run, and why?"
"$bin/rumbo" plan smollm2

bold "An answer, streamed"
"$bin/rumbo" run smollm2 "Write two sentences about the sea." --max-tokens 120 --seed 7 --verbose

bold "What was measured"
"$bin/rumbo" explain smollm2
"$bin/rumbo" ps

bold "Done"
