#!/usr/bin/env bash
# check.sh [BASE]: checks the contract of records on a fresh server at BASE
# (http://127.0.0.1:$PORT); needs curl.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
base=${1:-http://127.0.0.1:${PORT:-8081}}/postgres/public
# ask METHOD TABLE-AND-QUERY [BODY]
ask() { curl -sS -m 60 -w ' %{http_code}' -X "$1" ${3:+--data-binary "$3"} "$base/$2"; }

record='{"name":"James Bond","age":60,"gender":"Male","emails":["james@example.org"]}'
row='[{"id":"new","record":"{\"name\":\"\"}"}]'
one='personinfo?id=new&_select=record'
expect "no record yet" '^\[\] 200$' "$(ask GET "$one")"
expect "no record to put" '"rows_affected":0\} 200$' "$(ask PUT 'personinfo?id=new' "{\"record\":$record}")"
expect "no record to update" '"rows_affected":0\} 200$' "$(ask PATCH 'personinfo_age?id=new' '{"age":61}')"
expect "insert" ' 20[01]$' "$(base=${base/\/postgres\///batch/postgres/} ask POST personinfo "$row")"
expect "put" '"rows_affected":1\} 200$' "$(ask PUT 'personinfo?id=new' "{\"record\":$record}")"
expect "get" '^\[\{"record":\{"age": 60, .*\}\}\] 200$' "$(ask GET "$one")"
expect "update a path" '"rows_affected":1\} 200$' "$(ask PATCH 'personinfo_age?id=new' '{"age":61}')"
expect "the age is new" '"age": 61.* 200$' "$(ask GET "$one")"
expect "the name is not" '"name": "James Bond".* 200$' "$(ask GET "$one")"
expect "no JSON" ' 4[0-9][0-9]$' "$(ask PUT 'personinfo?id=new' '{"record":{"name":')"
expect "nothing changed" '"age": 61.* 200$' "$(ask GET "$one")"

finish
