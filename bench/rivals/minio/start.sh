#!/usr/bin/env bash
# start.sh: starts MinIO over a folder, waits until it answers, makes the users of users.json there, prints its process
# id, and returns; stop.sh ends it.
#
#   PORT        where it listens, on 127.0.0.1 (8083)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        its CPUs, as taskset takes them (all)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/../s3/users.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8083}
mkdir -p "$data/objects" "$data/mc"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
server=$here/minio
[ -x "$server" ] || { echo "MinIO is not built; run bench/rivals/minio/install.sh" >&2; exit 1; }
bind_to_cpus
base=http://127.0.0.1:$port

# It must not look for a newer version of itself, and its scanner belongs to its normal work.
MINIO_ROOT_USER=$root_access_key MINIO_ROOT_PASSWORD=$root_secret_key MINIO_UPDATE=off MINIO_BROWSER=off \
    "${bound[@]}" "$server" server --quiet --address "127.0.0.1:$port" "$data/objects" >"$data/front.log" 2>&1 &
served=$!
echo "$served" >"$data/front.pid"
until_healthy "$served" "$base/minio/health/ready" "$data/front.log"

client() { "$here/mc" --config-dir "$data/mc" --quiet "$@" >>"$data/users.log" 2>&1; }
make_user() {
    client admin user add rival "$2" "$3"
    client admin policy attach rival readwrite --user "$2"
}
# All its users share one canonical id.
if [ ! -e "$data/users.json" ]; then
    client alias set rival "$base" "$root_access_key" "$root_secret_key"
    make_users make_user 02d6176db174dc93cb1b899f7c6078f08654445fe8cf1b6ce98d8855f66bdbf4
fi

echo "$served"
stay "$served"
