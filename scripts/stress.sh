#!/usr/bin/env bash
# stress.sh [N]: runs all black-box tests N times (10), beside a process that keeps one core busy. Nothing is tried again: the first
# failure ends it, as a test that sometimes fails has a bug, or the server has.
set -euo pipefail

cd "$(dirname "$0")/.."
. scripts/steps.sh

rounds=${1:-10}
# The busy process ends by itself if this script is killed without a chance to end it.
BUSY_LIMIT_S=$((rounds * 1800))

export MILLRACE_TEST_REQUIRE=1
step build cargo build --quiet --release --locked -p millrace-server
step "build of the tests" cargo test --quiet --release --locked --workspace --test black_box --test descriptors --no-run

timeout "$BUSY_LIMIT_S" sh -c 'while :; do :; done' &
busy=$!
trap 'kill "$busy" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

for ((round = 1; round <= rounds; round++)); do
    step "round $round of $rounds" \
        cargo test --quiet --release --locked --workspace --test black_box --test descriptors
done
echo "== $rounds rounds passed"
