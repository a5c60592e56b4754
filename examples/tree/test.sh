#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin tree "${1:-}"

key="k-$unique"
req() { http POST /tree/req --data-binary "{\"key\":\"$1\"}" "${@:2}"; }
counters() { http GET "/tree/counters?key=$1"; }

counters "$key"; expect "counters start at 0" 200 '[0,0]'
req "$key";      expect "the first call" 200 '[0,0]'
req "$key";      expect "the second" 200 '[1,1]'
req "$key" -H "Idempotency-Key: once-$unique"; expect "with a key" 200 '[2,2]'
req "$key" -H "Idempotency-Key: once-$unique"; expect "sent again" 200 '[2,2]'
counters "$key"; expect "counted once" 200 '[3,3]'

for input in null '{}' '{"key":7}'; do
    post /tree/req "$input"
    expect_like "$input is refused" 409 '"aborted"'
done
http GET /tree/counters; expect_like "counters without a key" 400 '"bad-request"'

# Readers among writers: whoever looks, the two are equal.
mkdir "$work/writes" "$work/reads"
curl -s -Z --parallel-immediate --parallel-max 24 -d "{\"key\":\"$key-p\"}" -o "$work/writes/#1" "$BASE/tree/req?[1-300]" 2>/dev/null &
writer=$!
for round in {1..5}; do
    curl -s -Z --parallel-immediate --parallel-max 8 -o "$work/reads/$round-#1" "$BASE/tree/counters?key=$key-p&n=[1-40]" 2>/dev/null
done
wait "$writer"
expect_equal "300 concurrent calls see 0 to 299 twice" "$(seq 0 299 | sed 's/.*/[&,&]/' | paste -s -d ' ')" \
    "$(awk 1 "$work/writes"/* | sort -t '[' -k 2n | paste -s -d ' ')"
expect_equal "200 readers see equal counters" 200 "$(awk 1 "$work/reads"/* | grep -cE '^\[([0-9]+),\1\]$')"
counters "$key-p"; expect "and none is lost" 200 '[300,300]'
finish
