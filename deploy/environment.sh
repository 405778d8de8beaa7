#!/bin/sh
# Make a Python environment with qtide: deploy/environment.sh FOLDER PYTHON [EXTRA,…]
#
# It has the versions of constraints.txt, whose hashes are checked, so that the system's Python packages do
# not matter. It needs Python's venv module and a package index; the packages of this folder are made of it.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
builder=$(mktemp -d)
trap 'rm -rf "$builder"' EXIT
"$2" -m venv "$builder"
sed -n '/^uv==/,/[^\\]$/p' "$source/constraints.txt" > "$builder/uv.txt"
"$builder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$builder/uv.txt"
"$builder/bin/uv" venv --quiet --allow-existing --relocatable --python "$2" "$1"
"$builder/bin/uv" pip install --quiet --python "$1/bin/python" --link-mode copy \
    --constraint "$source/constraints.txt" "qtide[${3-}] @ file://$source"
rm -f "$1/.lock" "$1/.gitignore"  # uv's own; everybody could write the first
