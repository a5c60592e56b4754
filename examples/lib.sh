# Shared by every example's run.sh and test.sh; sourced, not run. Needs bash and curl.
#
#   PORT    the port run.sh listens on (8080)
#   DATA    the data directory of run.sh (data/<example> in the repository's root)
#   BINARY  the server to start (target/release/millrace, built when it is not there)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# binary: prints the path of the server, building it when it is missing.
binary() {
    local path=${BINARY:-${CARGO_TARGET_DIR:-$root/target}/release/millrace}
    if [ ! -x "$path" ] && [ -z "${BINARY:-}" ]; then
        (cd "$root" && cargo build --release --locked --bin millrace >&2) || return 1
    fi
    printf '%s\n' "$path"
}

# run_example NAME: serves one example in the foreground.
run_example() {
    local name=$1 server
    server=$(binary) || exit 1
    cd "$root" || exit 1
    exec "$server" serve --app "examples/$name" --data "${DATA:-data/$name}" --http "127.0.0.1:${PORT:-8080}"
}

# ---------------------------------------------------------------------------------------------
# Tests

passed=0
failed=0
node_pid=
work=$(mktemp -d)
status=
body=
# So that names used by one run meet no other run's when both talk to the same node.
unique="$$-$RANDOM"

# end_node: stops the node that begin has started; the status is the node's.
end_node() {
    local pid=$node_pid
    node_pid=
    kill -TERM "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
}

stop_node() {
    [ -z "$node_pid" ] || end_node
    rm -rf "$work"
}
trap stop_node EXIT
trap 'exit 130' INT TERM

# begin NAME [BASE]: uses the node at BASE, or starts one on a free port with the example's run.sh.
begin() {
    BASE=${2:-}
    BASE=${BASE%/}
    [ -n "$BASE" ] && return
    local server port tries
    server=$(binary) || exit 1
    for tries in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
        BASE="http://127.0.0.1:$port"
        # By its run.sh, which is checked with it.
        BINARY=$server PORT=$port DATA=$work/data "$root/examples/$1/run.sh" >"$work/server.log" 2>&1 &
        node_pid=$!
        wait_until_healthy && return
        wait "$node_pid" 2>/dev/null
        node_pid=
    done
    echo "the server did not start:" >&2
    cat "$work/server.log" >&2
    exit 1
}

wait_until_healthy() {
    local tenths
    for ((tenths = 0; tenths < 300; tenths++)); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/healthz" 2>/dev/null)" = 200 ] && return 0
        kill -0 "$node_pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# http METHOD PATH [curl arguments]: sets status, body and the file $work/headers.
# -g: a key may hold {braces}, which curl would expand.
http() {
    local method=$1 path=$2
    shift 2
    status=$(curl -g -s -S -m 60 -X "$method" -o "$work/body" -D "$work/headers" -w '%{http_code}' "$@" "$BASE$path")
    body=$(tr -d '\0' <"$work/body" 2>/dev/null)
}

# call SERVICE KEY HANDLER JSON [curl arguments]: one call of a handler.
call() {
    local service=$1 key=$2 handler=$3 input=$4
    shift 4
    http POST "/call/$service/$key/$handler" -H 'content-type: application/json' --data-binary "$input" "$@"
}

# post PATH JSON: one request to a route.
post() {
    http POST "$1" -H 'content-type: application/json' --data-binary "$2"
}

# report NAME 0|1 [DETAIL]
report() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n        %s\n' "$1" "${3:-}"
    fi
}

# expect NAME STATUS [BODY]: the last reply had this status, and this body where one is given.
expect() {
    local wanted="$2${3+ $3}" got="$status${3+ $body}"
    [ "$got" = "$wanted" ]
    report "$1" $? "wanted: $wanted, got: $status ${body:0:400}"
}

# expect_like NAME STATUS REGEX: as expect, the body matching an extended regular expression.
expect_like() {
    [ "$status" = "$2" ] && [[ $body =~ $3 ]]
    report "$1" $? "wanted: $2 /$3/, got: $status ${body:0:400}"
}

# expect_header NAME REGEX: some header line of the last reply matches, whatever its case.
expect_header() {
    grep -qiE "$2" "$work/headers"
    report "$1" $? "no header like $2 in: $(tr '\r\n' '  ' <"$work/headers")"
}

# expect_equal NAME WANTED GOT
expect_equal() {
    [ "$2" = "$3" ]
    report "$1" $? "wanted: $2, got: ${3:0:400}"
}

# number FIELD: the value of a numeric field of the last body, a flat JSON object.
number() {
    [[ $body =~ \"$1\":(-?[0-9.]+) ]] && printf '%s' "${BASH_REMATCH[1]}"
}

# finish: says how it went; the exit status is the number of failures, at most 1.
finish() {
    if [ -n "$node_pid" ]; then
        end_node
        expect_equal "the node that run.sh started stops cleanly" 0 $?
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit
}
