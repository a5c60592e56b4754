#!/usr/bin/env bash
# start.sh: starts PostgreSQL and the web tier on it, waits until both answer, prints the ids of all
# their processes, one a line, and returns; stop.sh ends them.
#
#   PORT        where the web tier listens, on 127.0.0.1 (8081)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of all processes, as taskset takes them (all)
#   PROCESSES   web processes (as many as CPUS has CPUs)
#   POOL        database connections over all web processes (16)
#   STATEMENTS  function or separate, see server.js (function)
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

node=
for candidate in "$here"/node_modules/node-linux-*/bin/node; do [ -x "$candidate" ] && node=$candidate; done
[ -n "$node" ] || { echo "Express is not installed; run bench/rivals/install.sh" >&2; exit 1; }
bind_to_cpus
start_postgres hotel "$here/postgresql.conf" "$here/schema.sql"

PORT=$port PROCESSES=${PROCESSES:-$count} NODE_ENV=production PGHOST=$sockets PGUSER=hotel PGDATABASE=postgres \
    "${bound[@]}" "$node" "$here/server.js" >"$data/web.log" 2>&1 &
echo $! >"$data/web.pid"
web=$!
until_healthy "$web" "http://127.0.0.1:$port/healthz" "$data/web.log"

printf '%s\n' "$database" "$web"
pgrep -P "$database,$web" || true
stay "$web"
