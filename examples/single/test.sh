#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin single "${1:-}"

key="k-$unique"
req() { http POST /single/req --data-binary "{\"key\":\"$1\"}" "${@:2}"; }

req "$key";   expect "the first call counts from 0" 200 0
req "$key";   expect "the second" 200 1
req "$key-b"; expect "another key has its own count" 200 0
req "$key" -H "Idempotency-Key: once-$unique"; expect "a call with a key" 200 2
req "$key" -H "Idempotency-Key: once-$unique"; expect "sent again: the first reply" 200 2
req "$key";   expect "and it counted once" 200 3
call single "$key" count null; expect "the count" 200 4

for input in null 5 '[]' '{}' '{"key":7}'; do
    post /single/req "$input"
    expect_like "$input is refused" 409 '"aborted"'
done
post /single/req '{"key":""}'; expect_like "an empty key" 400 '"bad-request"'
post /single/req '{"key":';    expect_like "what is not JSON" 400 '"invalid-input"'

# Every caller sees a count of its own: 0 to 999, each once.
mkdir "$work/many"
curl -s -Z --parallel-immediate --parallel-max 50 -d "{\"key\":\"$key-p\"}" -o "$work/many/#1" "$BASE/single/req?[1-1000]" 2>/dev/null
expect_equal "1,000 concurrent calls see 0 to 999" "$(seq -s ' ' 0 999)" "$(awk 1 "$work/many"/* | sort -n | paste -s -d ' ')"

# And a hundred copies of one call are one call.
mkdir "$work/copies"
copies=()
for copy in {1..100}; do copies+=(-o "$work/copies/$copy" "$BASE/single/req"); done
curl -s -Z --parallel-immediate --parallel-max 50 -H "Idempotency-Key: copies-$unique" -d "{\"key\":\"$key-p\"}" "${copies[@]}" 2>/dev/null
expect_equal "100 concurrent copies get one reply" "    100 1000" "$(awk 1 "$work/copies"/* | sort | uniq -c)"
req "$key-p"; expect "and count once" 200 1001
finish
