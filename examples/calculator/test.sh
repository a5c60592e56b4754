#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin calculator "${1:-}"

key="c-$unique"
call calculator "$key" get null;      expect "starts at 0" 200 0
call calculator "$key" add 5;         expect "add" 200 5
call calculator "$key" subtract 7.5;  expect "subtract" 200 -2.5
call calculator "$key" get null;      expect "get" 200 -2.5
for input in '"1"' null '{}'; do
    call calculator "$key" add "$input"; expect_like "add $input" 409 '"aborted"'
done
call calculator "$key" add 1.7e308;   expect_like "a large number" 200 '^1\.7e\+?308$'
call calculator "$key" add 1.7e308;   expect_like "beyond what a number holds" 409 '"aborted"'
call calculator "$key-k" add 10 -H "Idempotency-Key: once-$unique"; expect "with a key" 200 10
call calculator "$key-k" add 10 -H "Idempotency-Key: once-$unique"; expect "sent again" 200 10
call calculator "$key-k" get null;    expect "counted once" 200 10

# As many up as down.
curl -s -Z --parallel-immediate --parallel-max 16 -d 3 -o /dev/null "$BASE/call/calculator/$key-p/add#[1-100]" 2>/dev/null &
adding=$!
curl -s -Z --parallel-immediate --parallel-max 16 -d 3 -o /dev/null "$BASE/call/calculator/$key-p/subtract#[1-100]" 2>/dev/null
wait "$adding"
call calculator "$key-p" get null;    expect "concurrent additions and subtractions add up" 200 0
finish
