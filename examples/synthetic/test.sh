#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin synthetic "${1:-}"

for ms in 0 2 10 100; do
    http GET "/synthetic/spin?ms=$ms"; expect "spin $ms ms" 200 "{\"ms\":$ms}"
done
# How long a round takes differs between machines, but longer must be longer.
short=$(curl -s -o "$work/body" -w '%{time_total}' "$BASE/synthetic/spin?ms=10")
long=$(curl -s -o "$work/body" -w '%{time_total}' "$BASE/synthetic/spin?ms=400")
awk "BEGIN { exit !($long > 4 * $short && $long > 0.05) }"
report "400 ms take longer than 10 ms" $? "10 ms: $short s, 400 ms: $long s"

for length in 1 2 10 100; do
    http GET "/synthetic/chain?length=$length"; expect "a chain of $length" 200 "{\"length\":$length}"
done
for calls in 1 10 1000; do
    http GET "/synthetic/fan-out?calls=$calls"
    expect "a fan-out of $calls" 200 "{\"calls\":$calls,\"sum\":$((calls * (calls + 1) / 2))}"
done

http GET /synthetic/dag
expect_like "ten tasks, 40 ms on the critical path" 200 '^\{"tasks":10,"critical_path_ms":40,"ended":\["a",'
before() { [[ $body =~ \"$1\".*\"$2\" ]]; report "task $1 ends before $2" $? "$body"; }
for pair in a:b a:c a:d b:e c:f d:g e:h f:h f:i g:i h:j i:j; do before "${pair%:*}" "${pair#*:}"; done

http POST /synthetic/echo -H 'content-type: text/x-test' --data-binary $'two\nlines'
expect "echo" 200 $'two\nlines'
expect_header "echo keeps the content type" '^content-type: *text/x-test'
head -c 100000 /dev/urandom >"$work/random"
http POST /synthetic/echo -H 'content-type: application/octet-stream' --data-binary "@$work/random"
cmp -s "$work/random" "$work/body"; report "echo keeps bytes" $?
http POST /synthetic/echo -H 'content-type: text/plain' --data-binary ''; expect "echo of nothing" 200 ""

call synthetic any echo '{"a":[1,null,"ü"]}'; expect "echo as a call" 200 '{"a":[1,null,"ü"]}'
call synthetic any spin 5;      expect "spin as a call" 200 5
for ms in -1 1001 '"5"' null; do
    call synthetic any spin "$ms"; expect_like "spin $ms as a call" 409 '"aborted"'
done
call synthetic '{chain}1000' chain 1000; expect_like "a chain deeper than the limit" 500 '"depth-limit"'

for query in spin spin?ms= spin?ms=x spin?ms=-1 spin?ms=1001 chain?length=0 chain?length=101 fan-out?calls=0 fan-out?calls=1001 fan-out?calls=1.5; do
    http GET "/synthetic/$query"; expect_like "$query" 400 '"error"'
done
finish
