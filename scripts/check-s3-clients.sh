#!/usr/bin/env bash
# check-s3-clients.sh [ARGUMENTS]: clients of S3 that others wrote, against the built server, or against another one that
# the arguments of tests/clients/s3_clients.py name. Packages go below the target directory, once for each list of them.
# Clients written in Go are built where Go is, unless --quick leaves them out; without Python nothing runs, which fails
# with CI=true.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")

environment=$(scripts/s3-environment.sh)
if [ -z "$environment" ]; then
    echo "skipped: S3 clients: there is no python3 of 3.11 or later with venv" | tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    [ "${CI:-}" != true ]
    exit
fi

export TOOLS=$target/tools/s3-go
mkdir -p "$TOOLS"
if [[ " $* " != *" --quick "* ]] && command -v go >/dev/null; then
    (cd tests/clients/s3_minio_go && go build -mod=readonly -trimpath -o "$TOOLS/s3-minio-go" .) ||
        echo "minio-go could not be built" >&2
    [ -x "$TOOLS/mc" ] || GOBIN=$TOOLS go install github.com/minio/mc@latest || echo "mc could not be built" >&2
fi
exec "$environment/bin/python" tests/clients/s3_clients.py "$@"
