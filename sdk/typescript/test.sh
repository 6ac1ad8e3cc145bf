#!/usr/bin/env bash
# The TypeScript SDK's tests: compiled, packed as npm packs it, installed into a fresh folder, and used from there.
# Usage: test.sh BUILD_DIR. Downloads are kept in ${RUMBO_DEPS:-~/.cache/rumbo-dev}/typescript-sdk while the lock file stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
kept=${RUMBO_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/rumbo-dev}/typescript-sdk
command -v npm >/dev/null || { echo "npm is missing"; exit 77; }
want=$(node --version; cat "$here/package-lock.json")
if [ ! -f "$kept/made" ] || [ "$(cat "$kept/made")" != "$want" ]; then
  rm -rf "$kept"; mkdir -p "$kept"
  cp "$here/package.json" "$here/package-lock.json" "$kept/"
  (cd "$kept" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
  printf '%s\n' "$want" > "$kept/made"
fi
work=$build/typescript
rm -rf "$work"; mkdir -p "$work/package" "$work/app/node_modules/rumbo"
cp -r "$here/src" "$here/package.json" "$here/tsconfig.json" "$here/README.md" "$work/package/"
cp "$build/python/rumbo/wire.binpb" "$work/package/"
ln -s "$kept/node_modules" "$work/package/node_modules"
(cd "$work/package" && node_modules/.bin/tsc -p tsconfig.json && npm pack --silent --ignore-scripts --pack-destination "$work" >/dev/null)
# As `npm install rumbo-0.1.0.tgz` lays it out, with the dependencies that were locked.
tar -xzf "$work"/rumbo-*.tgz -C "$work/app/node_modules/rumbo" --strip-components=1
for dependency in "$kept"/node_modules/*; do
  [ "$(basename "$dependency")" = rumbo ] || ln -s "$dependency" "$work/app/node_modules/"
done
cp -r "$here/test" "$here/examples" "$work/app/"
cd "$work/app"
export RUMBO_FAKE_RUMBOD=$build/tests/fake_rumbod
exec node --preserve-symlinks --expose-gc --test --test-reporter=spec test/client.test.mjs
