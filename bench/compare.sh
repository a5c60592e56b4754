#!/usr/bin/env bash
# compare.sh: measures two builds of Millrace beside each other, on the same load and machine.
#
#   bench/compare.sh OLD NEW [ROUNDS [SECONDS [RESULTS]]]
#
# OLD and NEW are server binaries. In each round both serve each load in turn, on one core with a log that is synced. NEW's
# load generator checks every reply. Printed are medians over the rounds: server CPU for each request, and throughput.
# RESULTS gets a line for each measurement. CPUS="0 1" names the server's CPU and the generator's.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,8p >&2; exit 2; }
old=$1 new=$2 rounds=${3:-5} seconds=${4:-2} results=${5:-}
cd "$(dirname "$0")/.."
read -r server_cpu load_cpu <<<"${CPUS:-0 1}"
generator=$new port=${PORT:-18080}
work=$(mktemp -d "${DATA:-target}/compare.XXXXXX")
results=${results:-$work/results}
. bench/lib.sh
trap 'stop; rm -rf "$work"' EXIT
names=(login counter hotel record-get record-put)

: >"$results"
for round in $(seq "$rounds"); do
    # Who begins changes, so that a machine that grows slower harms both alike.
    sides=(old new)
    [ $((round % 2)) = 1 ] || sides=(new old)
    for side in "${sides[@]}"; do
        start "${!side}" 1 "$server_cpu"
        for name in "${names[@]}"; do
            load "$name" -c 64 -d "${seconds}s" --cpus "$load_cpu"
            echo "$name,$side,$cpu,$rate,$tail" >>"$results"
        done
        stop
    done
done

# of NAME SIDE COLUMN
of() { grep "^$1,$2," "$results" | cut -d, -f"$3" | median; }

echo "CPU: $(cpu_model)"
printf '%-11s %9s %9s %7s %9s %9s %7s\n' load 'old us' 'new us' ratio 'old /s' 'new /s' ratio
for name in "${names[@]}"; do
    awk -v n="$name" -v a="$(of "$name" old 3)" -v b="$(of "$name" new 3)" -v c="$(of "$name" old 4)" -v d="$(of "$name" new 4)" \
        'BEGIN { printf "%-11s %9.2f %9.2f %7.3f %9.0f %9.0f %7.3f\n", n, a, b, b / a, c, d, d / c }'
done
