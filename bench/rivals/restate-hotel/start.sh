#!/usr/bin/env bash
# start.sh: starts the Restate server and the process with the handlers, registers them, waits until
# a request passes through both, prints the ids of the processes, one a line, and returns; stop.sh
# ends them.
#
#   PORT        where the server's ingress listens, on 127.0.0.1 (8080)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of all processes, as taskset takes them (all)
#   PROCESSES   processes with handlers (one for every two CPUs of CPUS)
#   HANDLERS    a program that serves other handlers than those of services.ts
#   PARTITIONS  partitions of a new data folder (one for every two CPUs of CPUS)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8080}
mkdir -p "$data"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
count=$(taskset -c "$cpus" nproc)
processes=${PROCESSES:-$(((count + 1) / 2))}

node=
server=
for candidate in "$here"/node_modules/node-linux-*/bin/node; do [ -x "$candidate" ] && node=$candidate; done
for candidate in "$here"/node_modules/@restatedev/restate-server-linux-*/bin/restate-server; do
    [ -x "$candidate" ] && server=$candidate
done
if [ -z "$node" ] || [ -z "$server" ]; then
    echo "Restate is not installed; run bench/rivals/install.sh" >&2
    exit 1
fi

bind_to_cpus

# Three more ports, free at this moment and none of them PORT.
# shellcheck disable=SC2016 # JavaScript
read -r admin fabric service < <("$node" -e '
    const servers = [Number(process.argv[1]), 0, 0, 0].map((port) =>
        require("net").createServer().listen(port, "127.0.0.1"));
    let left = servers.length;
    for (const server of servers) server.on("listening", () => {
        if (--left > 0) return;
        console.log(servers.slice(1).map((server) => server.address().port).join(" "));
        for (const other of servers) other.close();
    });' "$port")
[ -n "$service" ] || exit 1

export RESTATE_INGRESS__BIND_ADDRESS=127.0.0.1:$port RESTATE_INGRESS__ADVERTISED_ADDRESS=http://127.0.0.1:$port
export RESTATE_ADMIN__BIND_ADDRESS=127.0.0.1:$admin RESTATE_ADMIN__ADVERTISED_ADDRESS=http://127.0.0.1:$admin
export RESTATE_BIND_ADDRESS=127.0.0.1:$fabric RESTATE_ADVERTISED_ADDRESS=http://127.0.0.1:$fabric
export RESTATE_BASE_DIR=$data/restate RESTATE_LISTEN_MODE=tcp RESTATE_DEFAULT_NUM_PARTITIONS=${PARTITIONS:-$(((count + 1) / 2))}
# The SDK logs every invocation unless told otherwise.
export DO_NOT_TRACK=1 RESTATE_LOGGING=WARN
if [ "$processes" -gt 1 ]; then
    # The server fills one connection before it opens the next, so small ones spread over the processes.
    export RESTATE_WORKER__INVOKER__HTTP2_STREAMS_PER_CONNECTION_LIMIT=16
fi
"${bound[@]}" "$server" --no-logo --config-file "$here/restate.toml" >"$data/restate.log" 2>&1 &
restate=$!
echo "$restate" >"$data/restate.pid"
handlers=("$node" "$here/services.ts")
[ -z "${HANDLERS:-}" ] || handlers=("$HANDLERS")
ADMIN_PORT=$admin SERVICE_PORT=$service PROCESSES=$processes NODE_ENV=production \
    "${bound[@]}" "${handlers[@]}" >"$data/services.log" 2>&1 &
services=$!
echo "$services" >"$data/services.pid"

# until_true COMMAND…: runs it until it succeeds, for 120 s and as long as both processes live.
until_true() {
    local tenths
    for ((tenths = 0; tenths < 1200; tenths++)); do
        "$@" >"$data/last-reply" 2>&1 && return 0
        if ! kill -0 "$restate" 2>/dev/null || ! kill -0 "$services" 2>/dev/null; then break; fi
        sleep 0.1
    done
    tail -20 "$data/restate.log" "$data/services.log" "$data/last-reply" >&2
    DATA=$data "$here/stop.sh"
    exit 1
}
json=(-H 'content-type: application/json')
until_true curl -sf "http://127.0.0.1:$admin/health"
until_true curl -sf "${json[@]}" "http://127.0.0.1:$admin/deployments" \
    -d "{\"uri\":\"http://127.0.0.1:$service\",\"force\":true}"
# A failed reservation changes nothing and passes through all parts.
until_true curl -sf "${json[@]}" "http://127.0.0.1:$port/hotel/reserve" -d '{"user":"-","flight":"-","hotel":"-"}'

printf '%s\n' "$restate" "$services"
pgrep -P "$services" || true
stay "$restate" "$services"
