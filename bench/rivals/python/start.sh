#!/usr/bin/env bash
# start.sh: starts one side, waits until it serves, prints the ids of its processes, one a line, and returns; stop.sh ends them.
#
#   SIDE        millrace   a node, and workers under uvicorn that it dials
#               dialled    a node, and workers that dial in
#               restate    Restate, its handlers under Hypercorn
#               dbos       FastAPI with DBOS under uvicorn, and PostgreSQL
#               asyncpg    FastAPI with asyncpg under uvicorn, and PostgreSQL
#               redis      the handlers of `millrace` under uvicorn, their state in Redis, without any guarantee
#               bare       uvicorn with one ASGI function
#   APP         of `millrace`, `dialled` and `redis`: a module of examples/python (hotel)
#   COUNTED     of `millrace` and `dialled`: the processes to print: all, node or worker (all)
#   DURABILITY  of `millrace` and `dialled`: as the flag of this name (fsync)
#   MILLRACE    the server's program
#   PORT        where it listens, on 127.0.0.1 (8080)
#   DATA        an empty folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of all processes, as taskset takes them (all)
#   PROCESSES   processes with handlers (1)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8080}
processes=${PROCESSES:-1}
app=${APP:-hotel}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
root=$(cd "$here/../../.." && pwd)
bin=$here/environment/bin
[ -x "$bin/python" ] || { echo "the Python environment is not installed; run $here/install.sh" >&2; exit 1; }
bind_to_cpus
export PYTHONPATH=$root/sdk/python/src:$root/examples/python:$here PYTHONDONTWRITEBYTECODE=1
started=()

free_port() {
    "$bin/python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# run LOG COMMAND…: starts a process of this side.
run() {
    local log=$data/$1
    shift
    "${bound[@]}" "$@" >"$log" 2>&1 &
    started+=($!)
    echo $! >>"$data/pids"
}

fail() {
    tail -n 20 "$data"/*.log >&2
    DATA=$data "$here/stop.sh"
    exit 1
}

# until_true COMMAND…: runs it until it succeeds, for 60 s and as long as all processes live.
until_true() {
    local tenths pid
    for ((tenths = 0; tenths < 600; tenths++)); do
        "$@" >"$data/last-reply" 2>&1 && return 0
        for pid in "${started[@]}"; do kill -0 "$pid" 2>/dev/null || fail; done
        sleep 0.1
    done
    fail
}

# uvicorn LOG APP PORT: serves an ASGI application.
uvicorn() {
    run "$1" "$bin/uvicorn" "$2" --port "$3" --workers "$processes" --log-level warning --no-access-log \
        --timeout-keep-alive 120 --backlog 4096
}

node() {
    run node.log "${MILLRACE:?the server}" serve --data "$data/node" --http "127.0.0.1:$port" --cores 1 \
        --durability "${DURABILITY:-fsync}" --log warn
    until_true curl -sf "http://127.0.0.1:$port/healthz"
}

case ${SIDE:?} in
    millrace)
        node
        # Not before: it could be the node's.
        worker=$(free_port)
        uvicorn worker.log "$app:app" "$worker"
        until_true "$MILLRACE" deploy "$app" --worker "http://127.0.0.1:$worker" --url "http://127.0.0.1:$port"
        ;;
    dialled)
        node
        for ((number = 0; number < processes; number++)); do
            run "worker$number.log" "$bin/python" -m millrace.connect "$app:app" --url "http://127.0.0.1:$port" --app "$app"
        done
        until_true sh -c "curl -sf http://127.0.0.1:$port/apps | grep -q '\"$app\"'"
        ;;
    restate)
        # That script stays, ends all, and prints the processes.
        export HANDLERS="$here/restate-handlers.sh" PARTITIONS=${PARTITIONS:-1} PROCESSES=$processes BIN=$bin
        exec "$here/../restate-hotel/start.sh"
        ;;
    dbos | asyncpg)
        start_postgres hotel "$here/../express-hotel/postgresql.conf" "$here/schema.sql"
        started+=("$database")
        echo "$database" >>"$data/pids"
        PGHOST=$sockets PROCESSES=$processes uvicorn web.log "${SIDE}_app:app" "$port"
        until_true curl -sf "http://127.0.0.1:$port/healthz"
        ;;
    redis)
        program=valkey-server
        command -v "$program" >/dev/null || program=redis-server
        run redis.log "$program" --port 0 --unixsocket "$data/redis" --dir "$data" --save "" --daemonize no --maxclients 12000
        until_true test -S "$data/redis"
        REDIS=$data/redis APP=$app uvicorn web.log redis_app:app "$port"
        until_true curl -sf "http://127.0.0.1:$port/healthz"
        ;;
    bare)
        uvicorn web.log bare_app:app "$port"
        until_true curl -sf "http://127.0.0.1:$port/healthz"
        ;;
    *) echo "there is no side $SIDE" >&2; exit 1 ;;
esac

case $SIDE,${COUNTED:-all} in
    millrace,node | dialled,node) started=("${started[0]}") ;;
    millrace,worker | dialled,worker) started=("${started[@]:1}") ;;
esac

# With their children: uvicorn's processes and PostgreSQL's.
for pid in "${started[@]}"; do
    echo "$pid"
    pgrep -P "$pid" || true
done
stay "${started[@]}"
