#!/usr/bin/env bash
# start.sh: starts MongoDB's server, waits until it answers, prints the id of its process, and returns;
# stop.sh ends it.
#
#   PORT        where it listens, on 127.0.0.1 (8081)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        the CPUs of the process, as taskset takes them (all)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8081}
mkdir -p "$data/mongodb"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}

program=$here/packages/fiftyone/db/bin/mongod
[ -x "$program" ] || { echo "MongoDB is not installed; run bench/rivals/mongodb-records/install.sh" >&2; exit 1; }

bind_to_cpus
"${bound[@]}" "$program" --config "$here/mongod.conf" --dbpath "$data/mongodb" --port "$port" >"$data/mongod.log" 2>&1 &
echo $! >"$data/mongod.pid"
served=$!
is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
# It listens once it serves.
for ((tenths = 0; tenths < 600; tenths++)); do
    is_open && break
    kill -0 "$served" 2>/dev/null || { cat "$data/mongod.log" >&2; exit 1; }
    sleep 0.1
done
is_open || { echo "MongoDB was not ready in time" >&2; DATA=$data "$here/stop.sh"; exit 1; }

echo "$served"
stay "$served"
