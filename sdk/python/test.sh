#!/usr/bin/env bash
# The Python SDK's tests: types, then pytest against the fake daemon of a build. Usage: test.sh BUILD_DIR [PYTHON]
# Keeps a virtual environment in ${RUMBO_DEPS:-~/.cache/rumbo-dev}/python-sdk, made anew when the requirements change.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
python=${2:-python3}
venv=${RUMBO_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/rumbo-dev}/python-sdk
want=$("$python" --version; cat "$here/requirements-test.txt")
if [ ! -f "$venv/made" ] || [ "$(cat "$venv/made")" != "$want" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements-test.txt"
  printf '%s\n' "$want" > "$venv/made"
fi
export PYTHONPATH=$build/python PYTHONDONTWRITEBYTECODE=1 RUMBO_FAKE_RUMBOD=$build/tests/fake_rumbod
cd "$build/python"
"$venv/bin/mypy" --strict --cache-dir "$build/python/.mypy" -p rumbo
exec "$venv/bin/pytest" -q -p no:cacheprovider -c "$here/pyproject.toml" --rootdir "$here" "$here/tests"
