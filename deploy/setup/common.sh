# Sourced by the set-up scripts: where things go, and how they are fetched and checked.
set -euo pipefail
# A relative path, so that what is named after its content is the same in every clone.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
setup_dir=deploy/setup
# Everything the build needs and the registries gave, shared by all clones of one user.
deps=${RUMBO_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/rumbo-dev}
mkdir -p "$deps/downloads" "$deps/packs" "$deps/models"

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }

# pypi NAME [--sdist]: downloads the pinned package into $deps/downloads and prints its file.
pypi() {
  local name=$1 form=("--only-binary" ":all:") stem file
  [ "${2:-}" = --sdist ] && form=("--no-binary" "$name")
  stem=${name//-/_}
  file=$(find "$deps/downloads" -maxdepth 1 -name "$stem-[0-9]*" | head -1)
  if [ -z "$file" ]; then
    local req; req=$(mktemp)
    grep -E "^$name==" "$setup_dir/requirements.txt" > "$req"
    say "downloading $(cut -d' ' -f1 "$req")"
    if [ "${2:-}" = --sdist ]; then
      # With an sdist pip also asks the package's build system for its metadata, whose own needs carry no
      # hashes; so the hash is compared here.
      python3 -m pip download -q --disable-pip-version-check --no-deps "${form[@]}" -d "$deps/downloads.tmp.$$" "$(cut -d' ' -f1 "$req")" >&2
    else
      python3 -m pip download -q --disable-pip-version-check --no-deps "${form[@]}" --require-hashes -d "$deps/downloads.tmp.$$" -r "$req" >&2
    fi
    file=$(find "$deps/downloads.tmp.$$" -name "$stem-[0-9]*" | head -1)
    local want have
    want=$(sed 's/.*sha256://' "$req"); have=$(sha256sum "$file" | cut -d' ' -f1)
    rm -f "$req"
    [ "$want" = "$have" ] || { echo "$name: sha256 is $have, not $want" >&2; rm -rf "$deps/downloads.tmp.$$"; exit 1; }
    mv "$file" "$deps/downloads/"; rm -rf "$deps/downloads.tmp.$$"
    file=$deps/downloads/$(basename "$file")
  fi
  printf '%s\n' "$file"
}

# npm_tarball PACKAGE: downloads the pinned tarball, compares its SHA-512, prints its file.
npm_tarball() {
  local line name version file want have
  line=$(grep -E "^$1 " "$setup_dir/npm-packs.txt"); read -r name version file want <<<"$line"
  if [ ! -f "$deps/downloads/$file" ]; then
    say "downloading $name@$version"
    local tmp=$deps/downloads.tmp.$$; mkdir -p "$tmp"
    (cd "$tmp" && npm pack --silent --ignore-scripts --pack-destination "$tmp" "$name@$version" >/dev/null)
    have=$(openssl dgst -sha512 -binary "$tmp/$file" | base64 -w0)
    [ "$have" = "$want" ] || { echo "$name: sha512 is $have, not $want" >&2; rm -rf "$tmp"; exit 1; }
    mv "$tmp/$file" "$deps/downloads/"; rm -rf "$tmp"
  fi
  printf '%s\n' "$deps/downloads/$file"
}
