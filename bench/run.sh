#!/usr/bin/env bash
# run.sh: measures Millrace beside its rivals and publishes the results in docs/benchmarks.
# Arguments go to the `functions` program: --only ID,… --rounds N --seconds N.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bench/rivals/install.sh
exec "$target/release/functions" --millrace "$target/release/millrace" --raw "$target/bench" "$@"
