#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
# Replaces whatever a node at BASE holds for this example. The large fill is of the full size, or of KEYS keys.
. "$(dirname "$0")/../lib.sh"
begin kv "${1:-}"

get() { http GET "/kv/get?key=$1"; }
# value KEY SIZE: what the fill gives this key.
value() { local unit="$1." text=; while [ ${#text} -lt "$2" ]; do text+=$unit; done; printf '%s' "${text:0:$2}"; }
# settle KEYS: waits until every value is stored.
settle() {
    local tenths
    for ((tenths = 0; tenths < 600; tenths++)); do
        http GET /kv/fill
        [ "$(number written)" = "$1" ] && break
        sleep 0.1
    done
    expect_like "the fill ends" 200 "^\{\"keys\":$1,\"size\":[0-9]+,\"written\":$1\}$"
}
# holds KEYS SIZE: some keys across the range have their values, and there are no others.
holds() {
    local key
    for key in 0 1 2047 2048 $(($1 / 2)) $(($1 - 1)); do
        [ "$key" -lt "$1" ] || continue
        get "$key"; expect "key $key of $1" 200 "$(value "$key" "$2")"
    done
    get "$1"; expect_like "key $1 of $1" 404 '"error"'
}

post /kv/fill '{"keys":10,"size":128}'; expect "a small fill is stored at once" 200 '{"keys":10,"size":128,"written":10}'
holds 10 128
expect_equal "values have the size asked for" 128 "$(get 3; wc -c <"$work/body" | tr -d ' ')"
get 3; expect_header "and are bytes" '^content-type: *application/octet-stream'
expect_equal "absolute check of one value" "3.3.3.3." "${body:0:8}"

keys=${KEYS:-262143}
post /kv/fill "{\"keys\":$keys,\"size\":128}"; expect_like "a large fill" 200 "^\{\"keys\":$keys,\"size\":128,\"written\":[0-9]+\}$"
holds "$keys" 128
settle "$keys"
holds "$keys" 128

post /kv/fill '{"keys":3000,"size":7}'; expect_like "another size, fewer keys" 200 '"keys":3000,"size":7'
holds 3000 7
get $((keys - 1)); expect_like "keys beyond it are gone" 404 '"error"'
settle 3000
holds 3000 7

for input in '' '{' 'null' '{}' '{"keys":0,"size":1}' '{"keys":1,"size":0}' '{"keys":262144,"size":1}' '{"keys":1,"size":4097}' \
    '{"keys":262143,"size":4096}' '{"keys":1.5,"size":1}' '{"keys":"1","size":1}'; do
    post /kv/fill "$input"
    expect_like "fill ${input:-nothing}" 400 '"error"'
done
for key in '' x -1 1.5 1e3 0x1 9999999999; do
    get "$key"; expect_like "get key=$key" 400 '"error"'
done
http GET /kv/get; expect_like "get without key" 400 '"error"'
holds 3000 7
finish
