#!/usr/bin/env bash
# start.sh: starts versitygw over a folder, waits until it answers, makes the users of users.json there, prints its process
# id, and returns; stop.sh ends it.
#
#   PORT        where it listens, on 127.0.0.1 (8082)
#   DATA        an empty or earlier folder for all data; on the disk to be measured (required)
#   CPUS        its CPUs, as taskset takes them (all)
#   WAIT        1: do not return; end everything on SIGTERM, and when this script is killed
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/../s3/users.sh"
data=${DATA:?a folder for the data}
port=${PORT:-8082}
mkdir -p "$data/objects" "$data/versions" "$data/iam"
data=$(cd "$data" && pwd)
cpus=${CPUS:-$(taskset -cp $$ | sed 's/.*: *//')}
gateway=$here/versitygw
[ -x "$gateway" ] || { echo "versitygw is not built; run bench/rivals/versitygw/install.sh" >&2; exit 1; }
bind_to_cpus
base=http://127.0.0.1:$port

# By default it closes the connection after each reply, which no client of a store wants.
ROOT_ACCESS_KEY=$root_access_key ROOT_SECRET_KEY=$root_secret_key "${bound[@]}" "$gateway" --keep-alive --quiet \
    --port "127.0.0.1:$port" --iam-dir "$data/iam" posix --versioning-dir "$data/versions" "$data/objects" \
    >"$data/front.log" 2>&1 &
served=$!
echo "$served" >"$data/front.pid"
until_answers "$served" "$base" "$data/front.log"

make_user() {
    "$gateway" admin --access "$root_access_key" --secret "$root_secret_key" --endpoint-url "$base" \
        create-user --access "$2" --secret "$3" --role userplus >>"$data/users.log" 2>&1
}
# Its canonical id of a user is the access key.
if [ ! -e "$data/users.json" ]; then make_users make_user access_key; fi

echo "$served"
stay "$served"
