#!/usr/bin/env bash
# run-transactions.sh: measures transactions and publishes the results in docs/benchmarks, the comparisons
# first (some 7 minutes), then the matrix (some 7 minutes). Arguments go to the `transactions` program:
# --part table --part matrix --only ID,… --rounds N --seconds N --matrix-seconds N.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bench/rivals/install.sh >&2
exec "$target/release/transactions" --millrace "$target/release/millrace" --data "$target" --raw "$target/bench" "$@"
