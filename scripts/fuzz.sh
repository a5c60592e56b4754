#!/usr/bin/env bash
# fuzz.sh [TARGET...]: runs each fuzz target, or those named, for SECONDS_EACH seconds (60).
#
# What a run finds goes to fuzz/corpus/TARGET, which git ignores; inputs worth keeping are copied
# to fuzz/seeds/TARGET by hand. A crash leaves its input in fuzz/artifacts/TARGET.
set -euo pipefail

cd "$(dirname "$0")/../fuzz"
seconds=${SECONDS_EACH:-60}
if [ $# = 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | grep -v '^millrace-fuzz$')
else
    targets=("$@")
fi
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target"
    echo "== $target, $seconds s"
    log=$(mktemp)
    cargo +nightly fuzz run "$target" "corpus/$target" "seeds/$target" -- \
        "-max_total_time=$seconds" -max_len=65536 -timeout=5 -rss_limit_mb=1024 >"$log" 2>&1 ||
        { tail -60 "$log" >&2; rm -f "$log"; echo "== $target failed" >&2; exit 1; }
    grep -E '^Done ' "$log" || true
    rm -f "$log"
done
