#!/usr/bin/env bash
# run-python.sh: measures handlers in Python beside rivals and publishes the results in docs/benchmarks, some 15 minutes.
# Arguments go to the `python` program: --only ID,… --rounds N --seconds N.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bench/rivals/python/install.sh >&2
exec "$target/release/python" --millrace "$target/release/millrace" --data "$target" --raw "$target/bench" "$@"
