#!/usr/bin/env bash
# run.sh [failover | handover | grow] [FLAGS]: builds the checker and runs it against the built server. -h lists the flags.
set -euo pipefail

cd "$(dirname "$0")"
repository=$(realpath ../..)
target=${CARGO_TARGET_DIR:-$repository/target}
export MILLRACE_BINARY=${MILLRACE_BINARY:-$(realpath -m "$target/release/millrace")}

if ! command -v go >/dev/null; then
    echo "skipped: the check of a cluster: there is no go, 1.26 or later" | tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    [ "${CI:-}" != true ]
    exit
fi
mkdir -p "$target/tools"
# The models must refuse what is wrong before they may judge.
go test -mod=readonly -count=1 ./... >/dev/null || { go test -mod=readonly -count=1 ./...; exit 1; }
go build -mod=readonly -trimpath -o "$target/tools/cluster-check" .
exec "$target/tools/cluster-check" "$@"
