#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin bank "${1:-}"

# One tag, so that the accounts share a shard and may take part in one transaction.
alice="{branch-$unique}alice"
bob="{branch-$unique}bob"

call account "$alice" balance null;    expect "a new account holds nothing" 200 0
call account "$alice" deposit 100;     expect "deposit answers the balance" 200 100
call account "$alice" withdraw 30;     expect "withdraw answers the balance" 200 70
call account "$alice" transfer "{\"to\":\"$bob\",\"amount\":25}"; expect "transfer" 200 null
call account "$alice" balance null;    expect "the sender paid" 200 45
call account "$bob" balance null;      expect "the receiver got it" 200 25

call account "$alice" transfer "{\"to\":\"$bob\",\"amount\":46}"
expect_like "a transfer beyond the balance" 409 '"aborted".*insufficient funds|insufficient funds.*"aborted"'
call account "$alice" withdraw 1000;   expect_like "a withdrawal beyond the balance" 409 'insufficient funds'
for amount in 0 -5 '"7"' null '[]' 1e400; do
    call account "$alice" deposit "$amount"
    [ "$status" = 409 ] || [ "$status" = 400 ]
    report "deposit $amount is refused" $? "got: $status $body"
done
for input in "{\"to\":\"$bob\",\"amount\":-1}" "{\"to\":\"\",\"amount\":1}" "{\"to\":7,\"amount\":1}" '{"amount":1}'; do
    call account "$alice" transfer "$input"
    expect_like "transfer $input is refused" 409 '"aborted"'
done
call account "$alice" balance null;    expect "refused calls changed nothing here" 200 45
call account "$bob" balance null;      expect "nor there" 200 25

call account "$alice" transfer "{\"to\":\"$alice\",\"amount\":45}"; expect "a transfer to oneself" 200 null
call account "$alice" balance null;    expect "keeps the balance" 200 45

call account "$bob" history null
expect_like "history tells the booking" 200 '^\[\{"id":"history/0+1","kind":"deposit","change":25,"balance":25,"at":[0-9]+\}\]$'
call account "$alice" history '{"limit":2}'
expect_like "history begins with the oldest" 200 '"history/0+1".*"deposit".*"history/0+2".*"withdraw"'
call account "$alice" history '{"after":"history/000000000000002","limit":1}'
expect_like "and goes on after a row" 200 '^\[\{"id":"history/0+3","kind":"transfer","change":-25,"balance":45,.*"to":'

call account "$alice" transfer "{\"to\":\"$bob\",\"amount\":5}" -H "Idempotency-Key: pay-$unique"
expect "a transfer with a key" 200 null
call account "$alice" transfer "{\"to\":\"$bob\",\"amount\":5}" -H "Idempotency-Key: pay-$unique"
expect "sent again" 200 null
call account "$bob" balance null;      expect "pays once" 200 30

# Money moves both ways at once; none is made and none is lost.
both=()
for _ in {1..60}; do
    both+=(-o "$work/p" -d "{\"to\":\"$bob\",\"amount\":1}" "$BASE/call/account/$alice/transfer" --next -g -s)
    both+=(-o "$work/p" -d "{\"to\":\"$alice\",\"amount\":1}" "$BASE/call/account/$bob/transfer" --next -g -s)
done
curl -g -s -Z --parallel-immediate --parallel-max 16 "${both[@]}" -o "$work/p" "$BASE/healthz" 2>/dev/null
call account "$alice" balance null; left=$body
call account "$bob" balance null
expect_equal "concurrent transfers keep the sum" 70 $((left + body))
finish
