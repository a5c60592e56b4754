#!/usr/bin/env bash
# s3-environment.sh: makes the Python environment that has clients of S3, below the target directory, once for each list of
# packages. Prints its path. Without Python it prints nothing.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
requirements=tests/clients/requirements-s3.txt

python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || exit 0
version=$( { python3 --version; cat "$requirements"; } | sha256sum | cut -c1-16)
environment=$target/tools/s3-clients-$version
if [ ! -e "$environment/whole" ]; then
    rm -rf "$target"/tools/s3-clients-*
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps \
        -r "$requirements" >&2 || {
        echo "could not install $requirements: pip needs its package index" >&2
        exit 1
    }
    touch "$environment/whole"
fi
echo "$environment"
