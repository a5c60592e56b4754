#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin list "${1:-}"

a="a-$unique"
b="b-$unique"
call list "$a" items null;       expect "a new list is empty" 200 '[]'
call list "$a" append 1;         expect "append answers the size" 200 1
call list "$a" append '"two"';   expect "of whatever JSON holds" 200 2
call list "$a" append '{"n":3}'; expect "objects too" 200 3
call list "$a" index 1;          expect "index" 200 '"two"'
for index in 3 -1 0.5 '"0"' null; do
    call list "$a" index "$index"; expect_like "index $index" 409 '"aborted"'
done
call list "$a" pop null;         expect "pop answers the last item" 200 '{"n":3}'
call list "$a" items null;       expect "and removes it" 200 '[1,"two"]'
call list "$b" pop null;         expect_like "an empty list has none" 409 '"aborted".*|.*the list is empty'
call list "$b" append 9;         expect "another list" 200 1
call list "$b" concat "\"$a\"";  expect "concatenation" 200 3
call list "$b" items null;       expect "has both lists' items" 200 '[9,1,"two"]'
call list "$a" items null;       expect "and leaves the other as it was" 200 '[1,"two"]'
call list "$a" concat "\"$a\"";  expect "a list with itself" 200 4
call list "$a" items null;       expect "is twice itself" 200 '[1,"two",1,"two"]'
call list "$a" append 5 -H "Idempotency-Key: once-$unique"; expect "append with a key" 200 5
call list "$a" append 5 -H "Idempotency-Key: once-$unique"; expect "sent again" 200 5
call list "$a" pop null;         expect "appended once" 200 5
call list "$a" index 4;          expect_like "and popped" 409 '"aborted"'

mkdir "$work/many"
curl -s -Z --parallel-immediate --parallel-max 32 -d 7 -o "$work/many/#1" "$BASE/call/list/$a-p/append#[1-200]" 2>/dev/null
expect_equal "200 concurrent appends have each its size" "$(seq -s ' ' 1 200)" "$(awk 1 "$work/many"/* | sort -n | paste -s -d ' ')"
# Lists that double: no item is lost or made by what runs beside.
for _ in 1 2 3; do call list "$a-p" concat "\"$a-p\""; done
expect "three doublings" 200 1600
finish
