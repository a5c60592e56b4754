#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin echo "${1:-}"

for value in 5 -1.5 null true '""' '"text"' '"é✓ \"quoted\""' '[]' '[1,[2,"x"]]' '{}' '{"v":{"w":[null]}}' '{"status":404,"body":"x"}'; do
    post /echo/req "$value"
    expect "echo $value" 200 "$value"
    expect_header "as JSON" '^content-type: *application/json'
done
post /echo/req ' [ 1 , 2 ] '; expect "white space is not part of the value" 200 '[1,2]'
for text in '{' 'x' '[1,]'; do
    post /echo/req "$text"
    expect_like "$text is not JSON" 400 '"invalid-input"'
done
http GET /echo/req; expect_like "the wrong method" 405 '"method-not-allowed"'
for _ in 1 2; do
    http POST /echo/req -d 7 -H "Idempotency-Key: echo-$unique"
    expect "with a key" 200 7
done
http POST /echo/req -d 8 -H "Idempotency-Key: echo-$unique"
expect "the same key with another body" 200 8
finish
