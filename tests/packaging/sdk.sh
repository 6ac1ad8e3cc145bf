#!/usr/bin/env bash
# The C++ package as another project sees it: installed into a fresh prefix, found by CMake and by pkg-config, linked, run.
# usage: sdk.sh BUILD_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill $daemon 2>/dev/null; rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" --component sdk >/dev/null
if grep -rlE "$build|$(dirname "$here")" "$work/prefix/lib/cmake" "$work/prefix/lib/pkgconfig"; then
  echo "FAIL  the package names folders of the build"; exit 1
fi
export RUMBO_SOCKET=$work/s.sock
"$build/tests/fake_rumbod" --socket "$RUMBO_SOCKET" 2>/dev/null & daemon=$!
cmake -S "$here/consumer" -B "$work/app" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
cmake --build "$work/app" >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
said=$("$work/app/consumer")
[ "$said" = "Hello, world" ] || { echo "FAIL  find_package: said \"$said\""; exit 1; }
echo "ok    find_package(rumbo)"
sed "s|^prefix=.*|prefix=$work/prefix|" -i "$work/prefix/lib/pkgconfig/rumbo.pc"
g++ -std=c++20 "$here/consumer/main.cpp" -o "$work/by-pkg-config" $(PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig pkg-config --cflags --libs rumbo)
[ "$("$work/by-pkg-config")" = "Hello, world" ] || { echo "FAIL  pkg-config"; exit 1; }
echo "ok    pkg-config rumbo"
