# lib.sh: starts a server and loads it, for compare.sh and scaling.sh; sourced, not run. These need nothing but the binary
# and bash, so that they run on a bare machine.
# shellcheck shell=bash
#
# They set `port`, `work` (a folder of their own) and `generator` (the binary whose load generator is used).
pid=

stop() { [ -z "$pid" ] || { kill "$pid"; wait "$pid" || true; pid=; }; }

# send METHOD PATH BODY: one request; prints the whole reply.
send() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
        "$1" "$2" "${#3}" "$3" >&3
    cat <&3
    exec 3>&-
}

# must METHOD PATH BODY: the same, and fails unless the status is 2xx.
must() {
    local reply
    reply=$(send "$@")
    [[ $reply == HTTP/1.1\ 2* ]] || { echo "$1 $2: $reply" >&2; exit 1; }
}

# start BINARY CORES CPUS: starts a server on new data, with the apps and the state that the loads need.
start() {
    local group number
    rm -rf "$work/data"
    taskset -c "$3" "$1" serve --data "$work/data" --http "127.0.0.1:$port" --cores "$2" \
        --app examples/counter --app examples/hotel --app examples/login >"$work/log" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        [[ $(send GET /healthz "" 2>/dev/null) == *" 200 "* ]] && break
        sleep 0.05
    done
    for number in $(seq 0 31); do must POST /user/register "{\"username\":\"user$number\",\"password\":\"correct horse\"}"; done
    # A reservation stays in its group, and a group on one shard: many groups give every core work.
    for group in $(seq 0 31); do
        for number in 0 1 2 3; do
            must POST /hotel/add_hotel "{\"id\":\"{g$group}h$number\",\"capacity\":1000000000}"
            must POST /hotel/add_flight "{\"id\":\"{g$group}f$number\",\"capacity\":1000000000}"
        done
    done
    must PUT /schemas/personinfo '{"type":"record","name":"PersonInfo","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"}]}'
    for number in $(seq 100); do must PUT "/records/personinfo/$number" '{"name":"Mr. Bond","age":20}'; done
}

# load NAME ARGUMENT…: loads the server as NAME says; sets `cpu` (microseconds of the server for a request), `rate` (requests a
# second) and `tail` (the 99th percentile with its unit). Arguments go to the generator. Every reply is checked.
load() {
    local name=$1 url=http://127.0.0.1:$port arguments warm_up=500ms
    shift
    case $name in
    # The first login of each user checks the password's hash.
    login) warm_up=4s arguments=("$url/user/login" -H 'Authorization: Basic {{base64:user{{uniform:0:32}}:correct horse}}') ;;
    counter) arguments=("$url/call/counter/k{{uniform:0:100000}}/add" -b 1) ;;
    hotel) arguments=("$url/hotel/reserve" --expect-body-contains '[true,' -b
        '{"user":"user{{uniform:0:1000000}}","flight":"{g{{group=uniform:0:32}}}f{{uniform:0:4}}","hotel":"{g{{$group}}}h{{uniform:0:4}}"}') ;;
    record-get) arguments=("$url/records/personinfo/{{uniform:1:101}}" --expect-body-contains 'Mr. Bond') ;;
    record-put) arguments=("$url/records/personinfo/{{uniform:1:101}}" -m PUT -b '{"name":"Mr. Bond","age":{{uniform:18:99}}}') ;;
    esac
    "$generator" bench http "${arguments[@]}" -q --warm-up "$warm_up" --server-pid "$pid" "$@" >"$work/out" || { cat "$work/out" >&2; exit 1; }
    cpu=$(sed -n 's/^server *\([0-9.]*\) .s CPU.*/\1/p' "$work/out")
    rate=$(sed -n 's/^requests.*, \([0-9.]*\)\/s.*/\1/p' "$work/out")
    tail=$(sed -n 's/.* p99 \([0-9.]* [^ ]*\) .*/\1/p' "$work/out")
}

# median: of the numbers on standard input.
median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

cpu_model() { sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1; }
