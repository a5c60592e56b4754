#!/usr/bin/env bash
# scaling.sh: measures how a node's throughput grows with its cores.
#
#   bench/scaling.sh MILLRACE CORES [ROUNDS [SECONDS [RESULTS]]]
#
# CORES is a list such as "1 2 4 8". The node gets the first CPUs of the machine, and the load generator the rest of them.
# The log is synced before each reply. RESULTS gets a line for each measurement: load, cores, microseconds of server CPU for a
# request, requests a second, p99. Printed is a table of medians.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,8p >&2; exit 2; }
generator=$1 counts=$2 rounds=${3:-3} seconds=${4:-2} results=${5:-}
cd "$(dirname "$0")/.."
port=${PORT:-18080}
work=$(mktemp -d "${DATA:-target}/scaling.XXXXXX")
results=${results:-$work/results}
. bench/lib.sh
trap 'stop; rm -rf "$work"' EXIT
names=(login counter hotel record-get record-put)
cpus=$(nproc)

: >"$results"
for _ in $(seq "$rounds"); do
    for cores in $counts; do
        [ "$cores" -lt "$cpus" ] || { echo "$cores cores leave no CPU for the load" >&2; exit 2; }
        others=$(seq -s, "$cores" $((cpus - 1)))
        start "$generator" "$cores" "0-$((cores - 1))"
        for name in "${names[@]}"; do
            load "$name" -c $((cores * 64)) -t $((cpus - cores)) -d "${seconds}s" --cpus "$others"
            echo "$name,$cores,$cpu,$rate,$tail" >>"$results"
        done
        stop
    done
done

of() { grep "^$1,$2," "$results" | cut -d, -f"$3" | median; }

echo "CPU: $(cpu_model), $cpus CPUs"
printf '%-11s %5s %9s %9s %7s\n' load cores us '/s' times
for name in "${names[@]}"; do
    first=
    for cores in $counts; do
        now=$(of "$name" "$cores" 4)
        first=${first:-$now}
        awk -v n="$name" -v c="$cores" -v u="$(of "$name" "$cores" 3)" -v r="$now" -v f="$first" \
            'BEGIN { printf "%-11s %5d %9.2f %9.0f %7.2f\n", n, c, u, r, r / f }'
    done
done
