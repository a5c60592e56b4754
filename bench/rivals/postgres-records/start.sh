#!/usr/bin/env bash
# start.sh: starts PostgreSQL and its HTTP front, waits until both answer, prints the ids of all
# their processes, one a line, and returns; stop.sh ends them.
#
#   PORT        where the front listens, on 127.0.0.1 (8081)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of all processes, as taskset takes them (all)
#   THREADS     threads of the front (as many as CPUS has CPUs)
#   POOL        database connections over all threads (16)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8081}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
count=$(taskset -c "$cpus" nproc)

front=$here/target/release/millrace-rival-postgres-records
[ -x "$front" ] || { echo "the front is not built; run bench/rivals/postgres-records/install.sh" >&2; exit 1; }
bind_to_cpus
start_postgres records "$here/postgresql.conf" "$here/schema.sql"

PORT=$port THREADS=${THREADS:-$count} POOL=${POOL:-16} PGHOST=$sockets PGUSER=records PGDATABASE=postgres \
    "${bound[@]}" "$front" >"$data/front.log" 2>&1 &
echo $! >"$data/front.pid"
served=$!
until_healthy "$served" "http://127.0.0.1:$port/healthz" "$data/front.log"

printf '%s\n' "$database" "$served"
pgrep -P "$database,$served" || true
stay "$served"
