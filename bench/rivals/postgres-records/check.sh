#!/usr/bin/env bash
# check.sh [BASE]: checks the contract of records on a fresh server at BASE
# (http://127.0.0.1:$PORT); needs curl.
set -uo pipefail
. "$(dirname "$0")/../lib.sh"
base=${1:-http://127.0.0.1:${PORT:-8081}}/records/personinfo
# ask METHOD ID [BODY]
ask() { curl -sS -m 60 -w ' %{http_code}' -X "$1" ${3:+--data-binary "$3"} "$base/$2"; }

record='{"name":"James Bond","age":60,"gender":"Male","emails":["james@example.org"]}'
set_age='[{"op":"set","path":".age","value":61}]'
expect "no record yet" ' 404$' "$(ask GET new)"
expect "no record to update" ' 404$' "$(ask PATCH new "$set_age")"
expect "put" '^ 20[01]$' "$(ask PUT new "$record")"
expect "get" '"age": ?60.* 200$' "$(ask GET new)"
expect "put again" '^ 200$' "$(ask PUT new "$record")"
expect "update a path" '^ 200$' "$(ask PATCH new "$set_age")"
expect "the age is new" '"age": ?61.* 200$' "$(ask GET new)"
expect "the name is not" '"name": ?"James Bond".* 200$' "$(ask GET new)"
expect "no JSON" ' [45][0-9][0-9]$' "$(ask PUT new '{"name":')"
expect "nothing changed" '"age": ?61.* 200$' "$(ask GET new)"

finish
