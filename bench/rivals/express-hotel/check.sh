#!/usr/bin/env bash
# check.sh [BASE]: checks the contract of the hotel on a fresh server at BASE
# (http://127.0.0.1:$PORT); needs curl. SAGA=1: reservations are not isolated from each other, so
# in a rush one may be refused a room that another gives back later.
set -uo pipefail
. "$(dirname "$0")/../lib.sh"
base=${1:-http://127.0.0.1:${PORT:-8081}}
post() { curl -sS -m 60 -w ' %{http_code}' -H 'content-type: application/json' --data-binary "$2" "$base$1"; }
reserve() { post /hotel/reserve "{\"user\":\"$1\",\"flight\":\"$2\",\"hotel\":\"$3\"}"; }
audit() { curl -sS -m 60 "$base/hotel/audit"; }

expect "add a hotel" ' 20[0-9]$' "$(post /hotel/add_hotel '{"id":"hotel1","capacity":4}')"
expect "add a flight" ' 20[0-9]$' "$(post /hotel/add_flight '{"id":"flight1","capacity":3}')"
expect "add a full hotel" ' 20[0-9]$' "$(post /hotel/add_hotel '{"id":"full","capacity":0}')"
expect "add a full flight" ' 20[0-9]$' "$(post /hotel/add_flight '{"id":"packed","capacity":0}')"
for user in 0 1 2; do
    expect "user $user" '^\[true,"[^"]*"\] 200$' "$(reserve "user$user" flight1 hotel1)"
done
expect "the flight is full" '^\[false,"[^"]*flight1[^"]*"\] 200$' "$(reserve user3 flight1 hotel1)"
expect "the hotel is full" '^\[false,"[^"]*full[^"]*"\] 200$' "$(reserve user4 flight1 full)"
expect "both are full: the hotel is named" '^\[false,"[^"]*full[^"]*"\] 200$' "$(reserve user5 packed full)"
expect "no such hotel" '^\[false,"[^"]*nowhere[^"]*"\] 200$' "$(reserve user6 flight1 nowhere)"
expect "no such flight" '^\[false,"[^"]*grounded[^"]*"\] 200$' "$(reserve user7 grounded hotel1)"
reply=$(audit)
expect "one room left" '"hotel1":1[,}]' "$reply"
expect "no seat left" '"flight1":0[,}]' "$reply"
expect "a full hotel stays full" '"full":0[,}]' "$reply"
expect "three orders" '"orders":3[,}]' "$reply"
expect "no lock" '"locks":0[,}]' "$reply"

# At once: 60 users for 25 seats and 30 rooms.
post /hotel/add_hotel '{"id":"busy","capacity":30}' >/dev/null
post /hotel/add_flight '{"id":"bustling","capacity":25}' >/dev/null
export base
# shellcheck disable=SC2016 # the inner shell expands it; one write a reply keeps lines whole
replies=$(seq 60 | xargs -P 30 -I{} sh -c 'echo "$(curl -sS -m 60 -H "content-type: application/json" \
    --data-binary "{\"user\":\"many$1\",\"flight\":\"bustling\",\"hotel\":\"busy\"}" "$base/hotel/reserve")"' sh {})
expect "25 of 60 at once" '^25$' "$(grep -c '^\[true,' <<<"$replies")"
refusal=bustling
if [ "${SAGA:-}" = 1 ]; then refusal='(bustling|busy)'; fi
expect "35 refused" '^35$' "$(grep -cE "^\[false,\"[^\"]*$refusal" <<<"$replies")"
reply=$(audit)
expect "5 rooms left" '"busy":5[,}]' "$reply"
expect "no seat left after the rush" '"bustling":0[,}]' "$reply"
expect "28 orders" '"orders":28[,}]' "$reply"
expect "no lock after the rush" '"locks":0[,}]' "$reply"

finish
