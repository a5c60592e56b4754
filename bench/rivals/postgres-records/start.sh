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
data=${DATA:?a folder for the data}
port=${PORT:-8081}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
count=$(taskset -c "$cpus" nproc)

front=$here/target/release/millrace-rival-postgres-records
[ -x "$front" ] || { echo "the front is not built; run bench/rivals/postgres-records/install.sh" >&2; exit 1; }
programs=$(for folder in /usr/lib/postgresql/*/bin; do echo "$folder"; done | sort -V | tail -1)
[ -x "$programs/postgres" ] || { echo "PostgreSQL is not installed; run bench/rivals/postgres-records/install.sh" >&2; exit 1; }

# PostgreSQL refuses to run as root; its package brings a user, who must reach the folder.
as_user=(env)
postgres=$data/postgres
if [ "$(id -u)" = 0 ]; then
    as_user=(setpriv --reuid postgres --regid postgres --clear-groups)
    chmod o+x "$data"
fi
mkdir -p "$postgres"
sockets=$(mktemp -d)
# A copy, for that user may not be able to read the checkout.
install -m 644 "$here/postgresql.conf" "$data/postgresql.conf"
if [ "$(id -u)" = 0 ]; then chown postgres: "$postgres" "$sockets"; fi
"${as_user[@]}" test -w "$postgres" || { echo "the user postgres cannot reach $postgres" >&2; exit 1; }
printf '%s\n' "$sockets" >"$data/sockets"

bound=(taskset -c "$cpus")
if [ "${WAIT:-}" = 1 ]; then bound=(setpriv --pdeathsig KILL "${bound[@]}"); fi

is_new=0
if [ ! -e "$postgres/PG_VERSION" ]; then
    is_new=1
    "${as_user[@]}" "$programs/initdb" -D "$postgres" -U records -A trust -E UTF8 --locale=C >"$data/initdb.log"
fi
# pdeathsig comes after the change of user, which would clear it.
(cd / && exec "${as_user[@]}" "${bound[@]}" "$programs/postgres" -D "$postgres" -k "$sockets" \
    -c config_file="$data/postgresql.conf" -c hba_file="$postgres/pg_hba.conf") >"$data/postgres.log" 2>&1 &
echo $! >"$data/postgres.pid"
database=$!
for ((tenths = 0; tenths < 600; tenths++)); do
    "$programs/pg_isready" -q -h "$sockets" -U records -d postgres && break
    kill -0 "$database" 2>/dev/null || { cat "$data/postgres.log" >&2; exit 1; }
    sleep 0.1
done
if [ "$is_new" = 1 ]; then
    "$programs/psql" -qX -v ON_ERROR_STOP=1 -h "$sockets" -U records -d postgres -f "$here/schema.sql" >/dev/null
fi

PORT=$port THREADS=${THREADS:-$count} POOL=${POOL:-16} PGHOST=$sockets PGUSER=records PGDATABASE=postgres \
    "${bound[@]}" "$front" >"$data/front.log" 2>&1 &
echo $! >"$data/front.pid"
served=$!
for ((tenths = 0; tenths < 600; tenths++)); do
    curl -sf -o /dev/null "http://127.0.0.1:$port/healthz" 2>/dev/null && break
    kill -0 "$served" 2>/dev/null || { cat "$data/front.log" >&2; DATA=$data "$here/stop.sh"; exit 1; }
    sleep 0.1
done

printf '%s\n' "$database" "$served"
pgrep -P "$database,$served" || true
if [ "${WAIT:-}" = 1 ]; then
    exec >/dev/null
    trap 'trap - TERM; DATA=$data "$here/stop.sh"; exit 0' TERM INT
    wait "$served"
    DATA=$data "$here/stop.sh"
fi
