#!/usr/bin/env bash
# run-records.sh: measures typed records and publishes the results in docs/benchmarks. Arguments go to
# the `records` program: --part table --part scaling --part memory --part micro --only ID,… --rounds N
# --seconds N --records N.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
bench/rivals/postgres-records/install.sh >&2
# Not every machine can install these. The results then say that they were not measured.
bench/rivals/prest-records/install.sh >&2 || echo "pREST is missing; the others are measured without it" >&2
bench/rivals/mongodb-records/install.sh >&2 || echo "MongoDB is missing; the others are measured without it" >&2
exec "$target/release/records" --millrace "$target/release/millrace" --data "$target" --raw "$target/bench" "$@"
