# Starts PostgreSQL for the fronts that are compared, so that it is the same before each; sourced, not run. Wants
# `$data`, a folder, `$cpus`, and `WAIT` as start.sh has them; `$bound` is what else has to be started by.
# shellcheck shell=bash

records=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bound=(taskset -c "$cpus")
if [ "${WAIT:-}" = 1 ]; then bound=(setpriv --pdeathsig KILL "${bound[@]}"); fi

# start_postgres SCHEMA…: starts it and waits until it answers; runs the files in a new database. Tells
# its process in `$database` and the folder of its socket in `$sockets`.
start_postgres() {
    local programs as_user postgres tenths schema is_new=0
    programs=$(for folder in /usr/lib/postgresql/*/bin; do echo "$folder"; done | sort -V | tail -1)
    [ -x "$programs/postgres" ] || { echo "PostgreSQL is not installed; run bench/rivals/postgres-records/install.sh" >&2; return 1; }

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
    install -m 644 "$records/postgresql.conf" "$data/postgresql.conf"
    if [ "$(id -u)" = 0 ]; then chown postgres: "$postgres" "$sockets"; fi
    "${as_user[@]}" test -w "$postgres" || { echo "the user postgres cannot reach $postgres" >&2; return 1; }
    printf '%s\n' "$sockets" >"$data/sockets"

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
        kill -0 "$database" 2>/dev/null || { cat "$data/postgres.log" >&2; return 1; }
        sleep 0.1
    done
    if [ "$is_new" = 1 ]; then
        for schema in "$@"; do
            "$programs/psql" -qX -v ON_ERROR_STOP=1 -h "$sockets" -U records -d postgres -f "$schema" >/dev/null
        done
    fi
}
