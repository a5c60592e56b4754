#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin counter "${1:-}"

key="hits-$unique"
call counter "$key" value null;  expect "a counter starts at 0" 200 0
call counter "$key" add 5;       expect "add answers the new value" 200 5
call counter "$key" add -2;      expect "a negative number subtracts" 200 3
call counter "$key" value null;  expect "value reads it" 200 3
call counter "$key" value "";    expect "an empty body is null" 200 3
call counter "$key-b" value null; expect "another key is another counter" 200 0

for input in '"1"' 1.5 null '{}' 1e300; do
    call counter "$key" add "$input"
    expect_like "add $input is refused" 409 '"aborted"'
done
call counter "$key" add '{"n":'; expect_like "input that is not JSON" 400 '"invalid-input"'
call counter "$key" reset null;  expect_like "an unknown handler" 404 '"unknown-handler"'
call no-such-service "$key" add 1; expect_like "an unknown service" 404 '"unknown-service"'
call counter "$key" value null;  expect "what was refused changed nothing" 200 3

call counter "$key" add 10 -H "Idempotency-Key: once-$unique"; expect "a call with a key" 200 13
call counter "$key" add 10 -H "Idempotency-Key: once-$unique"; expect "sent again: the first reply" 200 13
call counter "$key" value null;  expect "and it took effect once" 200 13

# 200 increments over up to 32 connections at a time: none may be lost, no two see one value.
urls=()
for _ in {1..200}; do urls+=(-o "$work/parallel" "$BASE/call/counter/$key-p/add"); done
statuses=$(curl -s -Z --parallel-immediate --parallel-max 32 -w '%{http_code}\n' -d 1 "${urls[@]}" 2>/dev/null | sort | uniq -c | tr -s ' ')
expect_equal "200 concurrent increments are all answered" " 200 200" "$statuses"
call counter "$key-p" value null; expect "and none is lost" 200 200
finish
