#!/usr/bin/env bash
# cold-reads.sh: how long requests for entities in memory take while others read entities that are on disk only.
#
# Usage: bench/cold-reads.sh [--rounds N] [--seconds N] [--entities N] [--clients N] [--data DIR] [--relay] NAME=BINARY …
#
# With --relay the clients do not ask for the entities that are on disk: entities in memory are asked, which call those.
#
# Each BINARY is a `millrace`; they take turns. A node with 64 MiB of memory holds many more entities of 1 KB than fit. While
# clients read any of them, the files of the checkpoint are taken out of the page cache again and again. So a read of an
# entity is a read of the disk. Prints CSV: the neighbours ask for ten entities, 500 times a second.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=5 entities=400000 clients=16 data=${TMPDIR:-/tmp} relay=
sides=()
while (($#)); do
  case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --entities) entities=$2; shift 2 ;;
    --clients) clients=$2; shift 2 ;;
    --data) data=$2; shift 2 ;;
    --relay) relay=yes; shift ;;
    *=*) sides+=("$1"); shift ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
  esac
done
((${#sides[@]})) || { echo "give a NAME=BINARY" >&2; exit 2; }
port=${PORT:-23280}
folder=$(mktemp -d "$data/millrace-cold-XXXXXX")
server=
cleanup() {
  if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi
  sleep 0.2
  rm -rf "$folder"
}
trap cleanup EXIT

start() {
  taskset -c 0 "$1" serve --app bench/apps/store --data "$folder/data" --http "127.0.0.1:$port" --cores 1 --memory 64MiB \
    >"$folder/log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    curl -sf "http://127.0.0.1:$port/healthz" >/dev/null && return
    sleep 0.1
  done
  cat "$folder/log" >&2
  return 1
}

stop() {
  kill "$server"
  wait "$server" || true
  server=
}

# Runs the load generator: its results as JSON in the file of the first argument.
load() {
  local json=$1
  shift
  taskset -c 1 "${sides[0]#*=}" bench http --quiet --json "$json" "$@" >"$folder/load.log" 2>&1 ||
    { cat "$folder/load.log" >&2; return 1; }
}

url=http://127.0.0.1:$port/call/store
kilobyte=$(for _ in $(seq 28); do printf '{{uuid}}'; done)
start "${sides[0]#*=}"
# Half again as long as it takes at 10,000 a second: those that are missing read as null.
load "$folder/fill.json" -c 256 --allow-status 503 --duration "$((entities * 3 / 20000))s" -b "\"$kilobyte\"" \
  "$url/k{{seq}}/put"
written=$(python3 -c 'import json,sys; print(int(json.load(open(sys.argv[1]))["requests"]))' "$folder/fill.json")
stop
((written < entities)) && entities=$written
echo "entities: $entities; $(du -sm "$folder/data/checkpoint" | cut -f1) MiB in the checkpoint" >&2

drop() {
  while sleep 0.05; do
    find "$folder/data/checkpoint" -type f -size +64k -exec dd if={} iflag=nocache count=0 status=none \; 2>/dev/null || true
  done
}

figures='
import json, sys
def of(path):
    report = json.load(open(path))
    latency = report["latency"]
    return report["rate"], *(latency[name] for name in ("p50_us", "p99_us", "p99_9_us"))
(rate, p50, p99, p99_9), cold = of(sys.argv[2]), of(sys.argv[3]) if len(sys.argv) > 3 else (0, 0, 0, 0)
print(f"{sys.argv[1]},{rate:.0f},{p50:.0f},{p99:.0f},{p99_9:.0f},{cold[0]:.0f},{cold[1]:.0f},{cold[2]:.0f}")
'
cold_calls=("$url/k{{uniform:10:$entities}}/get")
if [[ -n $relay ]]; then cold_calls=("$url/k{{uniform:0:10}}/relay" -b "\"k{{uniform:10:$entities}}\""); fi
echo "side,round,cold_clients,rate_per_s,p50_us,p99_us,p99_9_us,cold_reads_per_s,cold_p50_us,cold_p99_us"
for round in $(seq "$rounds"); do
  for side in "${sides[@]}"; do
    start "${side#*=}"
    hot=("$url/k{{uniform:0:10}}/get" -m POST -c 4 --rate 500 --duration "${seconds}s")
    load "$folder/hot.json" "${hot[@]}"
    python3 -c "$figures" "${side%%=*},$round,0" "$folder/hot.json"
    drop &
    dropper=$!
    load "$folder/cold.json" "${cold_calls[@]}" -m POST -c "$clients" --duration "$((seconds + 2))s" --warm-up 0s &
    cold=$!
    sleep 1
    load "$folder/hot.json" "${hot[@]}"
    wait "$cold"
    kill "$dropper"
    wait "$dropper" 2>/dev/null || true
    python3 -c "$figures" "${side%%=*},$round,$clients" "$folder/hot.json" "$folder/cold.json"
    stop
  done
done
