#!/usr/bin/env bash
# check-s3-clients.sh [ARGUMENTS]: clients of S3 that others wrote, against the built server, or against another one that
# the arguments of tests/clients/s3_clients.py name. Packages go below the target directory, once for each list of them.
# Clients written in Go are built where Go is; without Python nothing runs, which fails with CI=true.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
requirements=tests/clients/requirements-s3.txt

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "skipped: S3 clients: there is no python3 of 3.11 or later with venv" | tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    [ "${CI:-}" != true ]
    exit
fi

version=$( { python3 --version; cat "$requirements"; } | sha256sum | cut -c1-16)
environment=$target/tools/s3-clients-$version
if [ ! -e "$environment/whole" ]; then
    rm -rf "$target"/tools/s3-clients-*
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps \
        -r "$requirements" || {
        echo "could not install $requirements: pip needs its package index" >&2
        exit 1
    }
    touch "$environment/whole"
fi

export TOOLS=$target/tools/s3-go
mkdir -p "$TOOLS"
if command -v go >/dev/null; then
    (cd tests/clients/s3_minio_go && go build -mod=readonly -trimpath -o "$TOOLS/s3-minio-go" .) ||
        echo "minio-go could not be built" >&2
    [ -x "$TOOLS/mc" ] || GOBIN=$TOOLS go install github.com/minio/mc@latest || echo "mc could not be built" >&2
fi
exec "$environment/bin/python" tests/clients/s3_clients.py "$@"
