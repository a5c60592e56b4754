#!/usr/bin/env bash
# check-features.sh: the server by itself has the same features of its dependencies as in a build of the whole workspace.
#
# Where one differs, that crate and all that need it are compiled twice in each test run. The benchmarks' csv once turned on a
# feature of serde_core: 71 crates.
set -euo pipefail
cd "$(dirname "$0")/.."
features() {
    cargo tree --locked "$@" --prefix none --format '{p} has the features {f}' | sed 's/ (\*)$//' | sort -u
}
differing=$(comm -23 <(features -p millrace-server -e normal,build) <(features --workspace -e normal,build,dev))
if [ -n "$differing" ]; then
    echo "compiled once more for the workspace, whose other members turn on more features:" >&2
    echo "$differing" >&2
    exit 1
fi
