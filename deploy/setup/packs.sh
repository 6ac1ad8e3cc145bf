#!/usr/bin/env bash
# Makes llama.cpp packs, each a folder with include/, lib/, PACK (facts) and, for native, bin/:
#   prebuilt  libraries and headers from npm: seconds. Dynamic CPU variants and Vulkan.
#   native    the source tree of a PyPI sdist built for this processor: minutes, once. Also llama-server and tools.
# Idempotent. Usage: packs.sh prebuilt|native ...
source "$(dirname "$0")/common.sh"
llama_version=0.5.0

prebuilt() {
  local pack=$deps/packs/prebuilt stamp
  stamp=$(sha256sum "$setup_dir/npm-packs.txt" "$0" | sha256sum | cut -c1-16)
  [ -f "$pack/PACK" ] && grep -q "stamp=$stamp" "$pack/PACK" && return
  local tmp; tmp=$(mktemp -d "$deps/packs/tmp.XXXXXX")
  mkdir -p "$tmp/lib" "$tmp/include" "$tmp/x" "$tmp/xv" "$tmp/src"
  tar xzf "$(npm_tarball @node-llama-cpp/linux-x64)" -C "$tmp/x"
  tar xzf "$(npm_tarball @node-llama-cpp/linux-x64-vulkan)" -C "$tmp/xv"
  cp "$tmp"/x/package/bins/linux-x64/*.so "$tmp/lib/"
  # The Vulkan package's own libllama is another build; only its backend joins, and only where both were made on
  # the same libggml-base.
  cmp -s "$tmp/x/package/bins/linux-x64/libggml-base.so" "$tmp/xv/package/bins/linux-x64-vulkan/libggml-base.so" &&
    cp "$tmp/xv/package/bins/linux-x64-vulkan/libggml-vulkan.so" "$tmp/lib/"
  cp "$tmp/x/package/LICENSE" "$tmp/LICENSE"
  tar xzf "$(npm_tarball node-llama-cpp)" -C "$tmp/x" package/llama/gitRelease.bundle
  git -c advice.detachedHead=false clone -q --no-checkout "$tmp/x/package/llama/gitRelease.bundle" "$tmp/src/tree" 2>/dev/null
  git -C "$tmp/src/tree" sparse-checkout set --no-cone /include/ /ggml/include/ /common/ /vendor/nlohmann/
  git -C "$tmp/src/tree" checkout -q "$(git -C "$tmp/src/tree" rev-parse HEAD)"
  headers "$tmp/src/tree" "$tmp/include"
  local commit; commit=$(git -C "$tmp/src/tree" rev-parse --short HEAD)
  rm -rf "$tmp/x" "$tmp/xv" "$tmp/src"
  printf 'name=prebuilt\nversion=%s\ncommit=%s\nbackends=cpu vulkan\ndynamic_backends=1\nstamp=%s\n' "$llama_version" "bundle-$commit" "$stamp" > "$tmp/PACK"
  rm -rf "$pack"; mv "$tmp" "$pack"
  say "pack prebuilt ready"
}

native() {
  local pack=$deps/packs/native stamp cpu
  cpu=$(grep -m1 '^flags' /proc/cpuinfo | sha256sum | cut -c1-8)
  stamp=$(cat "$0" <(grep llama-cpp-python "$setup_dir/requirements.txt") | sha256sum | cut -c1-16)-$cpu
  [ -f "$pack/PACK" ] && grep -q "stamp=$stamp" "$pack/PACK" && return
  local sdist tmp; sdist=$(pypi llama-cpp-python --sdist)
  tmp=$(mktemp -d "$deps/packs/tmp.XXXXXX")
  mkdir -p "$tmp/src" "$tmp/lib" "$tmp/bin" "$tmp/include"
  local root; root=$(basename "$sdist" .tar.gz)
  tar xzf "$sdist" -C "$tmp/src" "$root/vendor/llama.cpp"
  local commit; commit=$(tar xzOf "$sdist" "$root/.git/modules/vendor/llama.cpp/HEAD" 2>/dev/null | cut -c1-9)
  local tree=$tmp/src/$root/vendor/llama.cpp
  say "building llama.cpp $llama_version ($commit) for this processor; about five minutes on two cores, once"
  cmake -G Ninja -S "$tree" -B "$tmp/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_IS_DEV=OFF -DLLAMA_BUILD_COMMIT="$commit" \
    -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache || true)" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
    -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON '-DCMAKE_BUILD_RPATH=$ORIGIN;$ORIGIN/../lib' > "$tmp/configure.log" 2>&1 ||
    { tail -20 "$tmp/configure.log" >&2; exit 1; }
  # mtmd links llama-server; quantize and gguf-split make test models.
  nice ninja -C "$tmp/build" llama llama-common mtmd llama-server llama-bench llama-fit-params llama-quantize \
    llama-gguf-split llama-tokenize > "$tmp/build.log" 2>&1 || { tail -30 "$tmp/build.log" >&2; exit 1; }
  cp -P "$tmp"/build/bin/*.so* "$tmp/lib/"
  for tool in llama-server llama-bench llama-fit-params llama-quantize llama-gguf-split llama-tokenize; do
    cp "$tmp/build/bin/$tool" "$tmp/bin/"
  done
  headers "$tree" "$tmp/include"
  cp "$tree/LICENSE" "$tmp/LICENSE"
  rm -rf "$tmp/src" "$tmp/build" "$tmp"/*.log
  printf 'name=native\nversion=%s\ncommit=%s\nbackends=cpu\ndynamic_backends=0\nstamp=%s\n' "$llama_version" "$commit" "$stamp" > "$tmp/PACK"
  rm -rf "$pack"; mv "$tmp" "$pack"
  say "pack native ready"
}

# headers TREE TARGET: llama.h and ggml's at the top, libllama-common's in common/, nlohmann's in vendor/.
headers() {
  cp "$1"/include/*.h "$1"/ggml/include/*.h "$2/"
  mkdir -p "$2/common" "$2/vendor"
  (cd "$1/common" && find . \( -name '*.h' -o -name '*.hpp' \) -print0 | xargs -0 cp --parents -t "$2/common")
  cp -r "$1/vendor/nlohmann" "$2/vendor/"
}

for pack in "$@"; do
  case $pack in prebuilt | native) "$pack" ;; *) echo "unknown pack $pack" >&2; exit 2 ;; esac
done
