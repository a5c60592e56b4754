#!/usr/bin/env bash
# start.sh: starts PostgreSQL and pREST before it, waits until both answer, prints the ids of all
# their processes, one a line, and returns; stop.sh ends them.
#
#   PORT        where pREST listens, on 127.0.0.1 (8081)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of all processes, as taskset takes them (all)
#   POOL        database connections (8)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8081}
pool=${POOL:-8}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}

front=$here/prestd
[ -x "$front" ] || { echo "pREST is not built; run bench/rivals/prest-records/install.sh" >&2; exit 1; }
bind_to_cpus
start_postgres records "$here/../postgres-records/postgresql.conf" "$here/../postgres-records/schema.sql" "$here/schema.sql"

# pREST writes a line for each request, and no setting turns that off, so its output is discarded. By default it keeps no
# idle connections and opens one for each request.
PREST_CONF=$here/prest.toml PREST_HTTP_PORT=$port PREST_PG_HOST=$sockets PREST_QUERIES_LOCATION=$here/queries \
    PREST_PG_MAXOPENCONN=$pool PREST_PG_MAXIDLECONN=$pool GOGC=400 \
    PREST_CACHE_STORAGEPATH=$data "${bound[@]}" "$front" >/dev/null 2>"$data/front.log" &
echo $! >"$data/front.pid"
served=$!
base=http://127.0.0.1:$port
until_healthy "$served" "$base/_health" "$data/front.log"

# pREST opens connections when it needs them. All must exist before the script prints their processes, because their CPU
# time belongs to the server.
backends() { pgrep -f "^postgres: records postgres " -P "$database" | wc -l; }
for ((tries = 0; tries < 20 && $(backends) < pool; tries++)); do
    curl -s --parallel --parallel-immediate --parallel-max "$pool" -o /dev/null \
        "$base/_QUERIES/ready/wait?request=[1-$pool]" 2>/dev/null || true
done
[ "$(backends)" -ge "$pool" ] || echo "only $(backends) of $pool database connections are open" >&2

printf '%s\n' "$database" "$served"
pgrep -P "$database,$served" || true
stay "$served"
