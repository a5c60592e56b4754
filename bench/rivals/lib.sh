# lib.sh: shared by the scripts that install, start and check the rivals; sourced, not run.
# shellcheck shell=bash

# ---------------------------------------------------------------------------------------------
# install.sh

# install_postgres: installs PostgreSQL and the needs of start.sh and check.sh from Debian's packages, if missing.
install_postgres() {
    local sudo=() missing=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    command -v taskset >/dev/null || missing+=(util-linux)
    command -v curl >/dev/null || missing+=(curl)
    command -v pgrep >/dev/null || missing+=(procps)
    [ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing+=(postgresql)
    if [ ${#missing[@]} -gt 0 ]; then
        "${sudo[@]}" apt-get update -qq
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
    fi
}

# ---------------------------------------------------------------------------------------------
# start.sh, with `$here` its folder, `$data` that of the data, `$cpus` the CPUs, and WAIT as told there

# bind_to_cpus: sets `$bound`, the command that must start every process of the rival.
bind_to_cpus() {
    bound=(taskset -c "$cpus")
    if [ "${WAIT:-}" = 1 ]; then bound=(setpriv --pdeathsig KILL "${bound[@]}"); fi
}

# start_postgres USER CONFIGURATION SCHEMA…: starts PostgreSQL and waits until it answers; in a new folder it
# runs the schemas. Sets `$database`, its process, and `$sockets`, the folder of its socket.
start_postgres() {
    local user=$1 configuration=$2 programs as_user postgres tenths schema is_new=0
    shift 2
    programs=$(for folder in /usr/lib/postgresql/*/bin; do echo "$folder"; done | sort -V | tail -1)
    [ -x "$programs/postgres" ] || { echo "PostgreSQL is not installed; run $here/install.sh or make bench-rivals" >&2; exit 1; }

    # PostgreSQL refuses to run as root; its package brings a user, who must reach the folder.
    as_user=(env)
    postgres=$data/postgres
    if [ "$(id -u)" = 0 ]; then
        as_user=(setpriv --reuid postgres --regid postgres --clear-groups)
        chmod o+x "$data"
    fi
    mkdir -p "$postgres"
    sockets=$(mktemp -d)
    # A copy, because that user may not be able to read the checkout.
    install -m 644 "$configuration" "$data/postgresql.conf"
    if [ "$(id -u)" = 0 ]; then chown postgres: "$postgres" "$sockets"; fi
    "${as_user[@]}" test -w "$postgres" || { echo "the user postgres cannot reach $postgres" >&2; exit 1; }
    printf '%s\n' "$sockets" >"$data/sockets"

    if [ ! -e "$postgres/PG_VERSION" ]; then
        is_new=1
        "${as_user[@]}" "$programs/initdb" -D "$postgres" -U "$user" -A trust -E UTF8 --locale=C >"$data/initdb.log"
    fi
    # pdeathsig comes after the change of user, which would clear it.
    (cd / && exec "${as_user[@]}" "${bound[@]}" "$programs/postgres" -D "$postgres" -k "$sockets" \
        -c config_file="$data/postgresql.conf" -c hba_file="$postgres/pg_hba.conf") >"$data/postgres.log" 2>&1 &
    database=$!
    echo "$database" >"$data/postgres.pid"
    for ((tenths = 0; tenths < 600; tenths++)); do
        "$programs/pg_isready" -q -h "$sockets" -U "$user" -d postgres && break
        kill -0 "$database" 2>/dev/null || { cat "$data/postgres.log" >&2; exit 1; }
        sleep 0.1
    done
    if [ "$is_new" = 1 ]; then
        for schema in "$@"; do
            "$programs/psql" -qX -v ON_ERROR_STOP=1 -h "$sockets" -U "$user" -d postgres -f "$schema" >/dev/null
        done
    fi
}

# until_healthy PROCESS URL LOG: waits until the URL answers; ends the rival if the process ends before.
until_healthy() {
    local tenths
    for ((tenths = 0; tenths < 600; tenths++)); do
        curl -sf -o /dev/null "$2" 2>/dev/null && break
        kill -0 "$1" 2>/dev/null || { cat "$3" >&2; DATA=$data "$here/stop.sh"; exit 1; }
        sleep 0.1
    done
}

# stay PROCESS…: with WAIT=1, returns when one of them has ended, or on SIGTERM, and has ended the rival.
stay() {
    [ "${WAIT:-}" = 1 ] || return 0
    exec >/dev/null
    trap 'trap - TERM; DATA=$data "$here/stop.sh"; exit 0' TERM INT
    wait -n "$@"
    DATA=$data "$here/stop.sh"
}

# ---------------------------------------------------------------------------------------------
# check.sh

passed=0
failed=0

# expect NAME EXTENDED-REGEX REPLY
expect() {
    if [[ $3 =~ $2 ]]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        printf 'FAILED: %s: wanted /%s/, got: %s\n' "$1" "$2" "$3"
    fi
}

# finish: prints the result, and fails if any check failed.
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
