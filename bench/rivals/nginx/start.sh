#!/usr/bin/env bash
# start.sh: starts nginx over the files of a versitygw, which takes the writes. Waits until both answer, prints the process
# id of nginx, and returns; stop.sh ends both.
#
#   PORT        where it listens, on 127.0.0.1 (8084)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        its CPUs, as taskset takes them (all)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/../s3/users.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8084}
mkdir -p "$data/gateway" "$data/temporary"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
[ -x /usr/sbin/nginx ] || { echo "nginx is not installed; run bench/rivals/nginx/install.sh" >&2; exit 1; }
bind_to_cpus

# Some port that nobody listens on.
gateway_port=$((20000 + (port + $$) % 10000))
while (exec 3<>"/dev/tcp/127.0.0.1/$gateway_port") 2>/dev/null; do gateway_port=$((gateway_port + 1)); done
start_gateway() { PORT=$gateway_port DATA=$data/gateway CPUS=$cpus "$@" "$here/../versitygw/start.sh"; }
if [ "${WAIT:-}" = 1 ]; then
    start_gateway setpriv --pdeathsig TERM >"$data/gateway.pid" 2>"$data/gateway.log" &
    gateway=$!
    # It prints its process when it serves.
    until [ -s "$data/gateway.pid" ]; do
        kill -0 "$gateway" 2>/dev/null || { cat "$data/gateway.log" >&2; exit 1; }
        sleep 0.1
    done
else
    start_gateway env >/dev/null
fi
cp "$data/gateway/users.json" "$data/users.json"

# Its worker must reach the folder, which is root's where root measures.
user=
[ "$(id -u)" != 0 ] || user='user root;'
sed -e "s|@DATA@|$data|g; s|@PORT@|$port|g; s|@GATEWAY@|$gateway_port|g; s|^@USER@|$user|" "$here/nginx.conf" >"$data/nginx.conf"
"${bound[@]}" /usr/sbin/nginx -e "$data/nginx.log" -c "$data/nginx.conf" >"$data/front.log" 2>&1 &
served=$!
echo "$served" >"$data/front.pid"
until_answers "$served" "http://127.0.0.1:$port" "$data/front.log"

echo "$served"
stay "$served"
