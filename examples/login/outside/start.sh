#!/usr/bin/env bash
# start.sh: brings up the outside database and its HTTP gateway, waits until they answer, prints the
# ids of both processes, one a line, and returns; stop.sh ends them.
#
#   PORT   where the gateway listens, on 127.0.0.1 (8090)
#   DATA   an empty or earlier folder for all data (required)
#   USERS  how many users besides alice a new database gets: user0 with password0, … (1000)
#   CPUS   the CPUs of all processes, as taskset takes them (all)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=${DATA:?a folder for the data}
port=${PORT:-8090}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}

programs=$(for folder in /usr/lib/postgresql/*/bin; do echo "$folder"; done | sort -V | tail -1)
httpd=$(command -v apache2 || command -v /usr/sbin/apache2 || command -v httpd || true)
modules=/usr/lib/apache2/modules
if [ ! -x "$programs/postgres" ] || [ -z "$httpd" ] || [ ! -e "$modules/mod_lua.so" ]; then
    echo "PostgreSQL or Apache httpd is not installed; run $here/install.sh" >&2
    exit 1
fi

# PostgreSQL refuses to run as root; its package brings a user, who must reach the folders.
as_user=(env)
if [ "$(id -u)" = 0 ]; then
    as_user=(setpriv --reuid postgres --regid postgres --clear-groups)
    chmod o+x "$data"
fi
sockets=$(mktemp -d)
mkdir -p "$data/postgres" "$data/gateway"
# Copies, for that user may not be able to read the checkout.
cp "$here/gateway.conf" "$here/gateway.lua" "$data/gateway/"
chmod 644 "$data/gateway/gateway.conf" "$data/gateway/gateway.lua"
if [ "$(id -u)" = 0 ]; then chown postgres: "$data/postgres" "$data/gateway" "$sockets"; fi
"${as_user[@]}" test -w "$data/postgres" || { echo "the user postgres cannot reach $data" >&2; exit 1; }
printf '%s\n' "$sockets" >"$data/sockets"

# give_up LOG: says what went wrong and ends what runs.
give_up() {
    tail -20 "$1" >&2
    DATA=$data "$here/stop.sh"
    exit 1
}

is_new=0
if [ ! -e "$data/postgres/PG_VERSION" ]; then
    is_new=1
    "${as_user[@]}" "$programs/initdb" -D "$data/postgres" -U owner -A trust -E UTF8 --locale=C >"$data/initdb.log"
fi
(cd / && exec "${as_user[@]}" taskset -c "$cpus" "$programs/postgres" -D "$data/postgres" -k "$sockets" \
    -c listen_addresses= -c max_connections=150) >"$data/postgres.log" 2>&1 &
database=$!
echo "$database" >"$data/postgres.pid"
for ((tenths = 0; tenths < 600; tenths++)); do
    "$programs/pg_isready" -q -h "$sockets" -U owner -d postgres && break
    kill -0 "$database" 2>/dev/null || give_up "$data/postgres.log"
    sleep 0.1
done
if [ "$is_new" = 1 ]; then
    "$programs/psql" -qX1 -v ON_ERROR_STOP=1 -v "users=${USERS:-1000}" -h "$sockets" -U owner -d postgres \
        -f "$here/schema.sql" >/dev/null || give_up "$data/postgres.log"
fi

export GATEWAY_PORT=$port GATEWAY_DATA=$data/gateway GATEWAY_MODULES=$modules GATEWAY_SOCKETS=$sockets
export GATEWAY_SCRIPT=$data/gateway/gateway.lua
(cd / && exec "${as_user[@]}" taskset -c "$cpus" "$httpd" -D FOREGROUND -f "$data/gateway/gateway.conf") \
    >"$data/gateway.log" 2>&1 &
gateway=$!
echo "$gateway" >"$data/gateway.pid"
for ((tenths = 0; tenths < 600; tenths++)); do
    curl -sf -o /dev/null "http://127.0.0.1:$port/healthz" 2>/dev/null && break
    kill -0 "$gateway" 2>/dev/null || give_up "$data/gateway.log"
    sleep 0.1
done
printf '%s\n' "$database" "$gateway"
