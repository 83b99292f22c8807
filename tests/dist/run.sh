#!/usr/bin/env bash
# Builds the wheel and the source distribution, installs each in a clean environment, and tries it from a folder where the
# sources are not: what a user gets by `pip install`.
#   run.sh PYTHON MATURIN
set -euo pipefail
python=$1 maturin=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rm -rf "$root/dist"
"$maturin" build --release --locked --quiet --out "$root/dist"
# What is built from this has a smaller workspace than the lock file, from which cargo then takes out what is not there.
"$maturin" sdist --out "$root/dist"

try() { # a distribution, and how to install it
    local clean="$scratch/$1"
    "$python" -m venv "$clean"
    "$clean/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
    (cd "$scratch" && "$clean/bin/python" "$root/tests/dist/smoke.py" "$root/README.md")
}

try wheel "$root"/dist/*.whl
try sdist "$root"/dist/*.tar.gz
