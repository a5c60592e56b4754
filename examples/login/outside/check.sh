#!/usr/bin/env bash
# check.sh [BASE]: checks the gateway at BASE (http://127.0.0.1:$PORT); needs curl and sha1sum.
set -uo pipefail
base=${1:-http://127.0.0.1:${PORT:-8090}}
passed=0
failed=0

# expect NAME WANTED ARGUMENTS…: the status and body of a curl with these arguments.
expect() {
    local name=$1 wanted=$2 got
    shift 2
    got=$(curl -gsS -m 20 -w '%{http_code} %{content_type}' -o /dev/stdout "$@" | tr -d '\n')
    if [ "$got" = "$wanted" ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        printf 'FAILED: %s: wanted %s, got %s\n' "$name" "$wanted" "$got"
    fi
}
salt=0123456789abcdef
hash=$(printf '%s' "correct horse$salt" | sha1sum | cut -d' ' -f1)
json='200 application/json'
expect "alice" "[{\"username\":\"alice\",\"salt\":\"$salt\",\"hash\":\"$hash\"}]$json" "$base/users?username=eq.alice"
expect "nobody" "[]$json" "$base/users?username=eq.nobody"
expect "an escaped name" "[{\"username\":\"alice\",\"salt\":\"$salt\",\"hash\":\"$hash\"}]$json" "$base/users?username=eq.%61lice"
expect "quotes in a name" "[]$json" "$base/users?username=eq.x%27%20OR%20%271%27=%271"
wrong='{"message":"the query must be username=eq.NAME"}400 application/json'
expect "a NUL in a name" "$wrong" "$base/users?username=eq.alice%00x"
expect "not UTF-8" "$wrong" "$base/users?username=eq.%FF"
expect "no name" "$wrong" "$base/users"
expect "another operator" "$wrong" "$base/users?username=like.a"
expect "another table" '{"message":"only /users is served"}404 application/json' "$base/secrets"
expect "a write" '{"message":"only GET is served"}405 application/json' -d '{}' "$base/users?username=eq.alice"
expect "health" 'ok200 text/plain' "$base/healthz"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
