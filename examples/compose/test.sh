#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin compose "${1:-}"

lists() { http GET /compose/lists; }
# The lists may hold something already on the node at BASE: `items` is what each should hold.
lists
items=${body#[[}
items=${items%%]*}
three() { printf '[[%s],[%s],[%s]]' "$items" "$items" "$items"; }
add() { items=${items:+$items,}$1; }

lists; expect "the lists are equal" 200 "$(three)"
add 5;  post /compose/append 5;  expect "append 5" 200 "$(three)"
add 42; post /compose/append 42; expect "append 42" 200 "$(three)"

for v in 10 -1; do
    post /compose/append-user-abort "$v"; expect_like "user abort at $v" 409 '"aborted"'
    lists; expect "changes nothing" 200 "$(three)"
done
for v in 11 1000; do
    post /compose/append-callee-throws "$v"; expect_like "callee throws at $v" 409 '"aborted"'
    lists; expect "changes nothing" 200 "$(three)"
done
add 11; post /compose/append-user-abort 11;     expect "no user abort at 11" 200 "$(three)"
add 10; post /compose/append-callee-throws 10;  expect "callee does not throw at 10" 200 "$(three)"
for v in '"5"' null '[]'; do
    post /compose/append "$v"; expect_like "append $v is refused" 409 '"aborted"'
done
post /compose/append '['; expect_like "what is not JSON" 400 '"invalid-input"'
lists; expect "and changes nothing" 200 "$(three)"

# A refusal with a key is an answer like any other: it is given again, for the same request.
for _ in 1 2; do
    http POST /compose/append-user-abort -d 3 -H "Idempotency-Key: no-$unique"
    expect_like "a refusal with a key" 409 '"aborted"'
done
add 7
for _ in 1 2; do
    http POST /compose/append -d 7 -H "Idempotency-Key: yes-$unique"
    expect "an append with a key" 200 "$(three)"
done
lists; expect "happens once" 200 "$(three)"

# Appends, refusals and reads at once: the lists stay equal, and hold what was appended.
mkdir "$work/many"
for v in append append-user-abort append-callee-throws; do
    curl -s -Z --parallel-immediate --parallel-max 8 -d 7 -o "$work/many/$v-#1" "$BASE/compose/$v?[1-40]" 2>/dev/null &
done
curl -s -Z --parallel-immediate --parallel-max 4 -o "$work/many/lists-#1" "$BASE/compose/lists?[1-40]" 2>/dev/null
wait $(jobs -p | grep -vx "$node_pid")
expect_equal "40 readers see equal lists" 40 "$(awk 1 "$work/many"/lists-* | grep -cE '^\[(\[[0-9,-]*\]),\1,\1\]$')"
expect_equal "40 user aborts" 40 "$(grep -l '"aborted"' "$work/many"/append-user-abort-* | wc -l)"
for _ in {1..80}; do add 7; done
lists; expect "80 appends, nothing of the refusals" 200 "$(three)"
finish
