#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin transfer "${1:-}"

a="a-$unique"
b="b-$unique"
open() { post /transfer/open "{\"id\":\"$1\",\"balance\":$2}"; }
balance() { http GET "/transfer/balance?id=$1"; printf '%s' "$body"; }
# move WAY FROM TO AMOUNT [curl arguments]
move() { http POST "/transfer/$1" --data-binary "{\"from\":\"$2\",\"to\":\"$3\",\"amount\":$4}" "${@:5}"; }
# settle ID: waits until the saga is over.
settle() {
    local tenths
    for ((tenths = 0; tenths < 300; tenths++)); do
        http GET "/invocations/$1"
        [ "$status" = 200 ] || return
        [[ $body =~ \"status\":\"(succeeded|failed|cancelled)\" ]] && return
        sleep 0.1
    done
}

open "$a" 100; expect "open" 200 "{\"id\":\"$a\",\"balance\":100}"
open "$b" 0;   expect "open with nothing" 200 "{\"id\":\"$b\",\"balance\":0}"
open "$a" 5;   expect_like "open twice" 409 '"aborted"'
http GET "/transfer/balance?id=$a";    expect "balance" 200 100
http GET "/transfer/balance?id=no-$a"; expect_like "of an unknown account" 404 '"error"'

move transaction "$a" "$b" 30; expect "a transaction" 200 '{"from":70,"to":30}'
move transaction "$a" "$b" 71; expect_like "beyond the balance" 409 '"aborted"'
move transaction "$a" "no-$b" 1; expect_like "to nobody" 409 '"aborted"'
move transaction "no-$a" "$b" 1; expect_like "from nobody" 409 '"aborted"'
for way in transaction saga; do
    move "$way" "$a" "$a" 1; expect_like "$way to oneself" 409 '"aborted"'
    for input in null '{}' "{\"from\":\"$a\"}" "{\"from\":\"$a\",\"to\":7,\"amount\":1}"; do
        post "/transfer/$way" "$input"; expect_like "$way $input" 409 '"aborted"'
    done
done
for way in transaction saga; do
    for amount in 0 -1 1.5 '"1"' null; do move "$way" "$a" "$b" "$amount"; expect_like "$way of $amount" 409 '"aborted"'; done
done
move transaction "$a" "$b" 5 -H "Idempotency-Key: t-$unique"; expect "with a key" 200 '{"from":65,"to":35}'
move transaction "$a" "$b" 5 -H "Idempotency-Key: t-$unique"; expect "sent again" 200 '{"from":65,"to":35}'
expect_equal "nothing else has changed" "65 35" "$(balance "$a") $(balance "$b")"

move saga "$a" "$b" 5; expect_like "a saga answers its invocation id" 200 '^"[^"]+"$'; settle "${body//\"/}"
expect_like "it succeeds" 200 '"status":"succeeded".*"output":\{"from":60,"to":40\}'
expect_equal "and moves the money" "60 40" "$(balance "$a") $(balance "$b")"
move saga "$a" "$b" 5 -H "Idempotency-Key: s-$unique"; first=$body; settle "${first//\"/}"
move saga "$a" "$b" 5 -H "Idempotency-Key: s-$unique"; expect "a saga sent again has the same id" 200 "$first"; settle "${first//\"/}"
expect_equal "and runs once" "55 45" "$(balance "$a") $(balance "$b")"
move saga "$a" "$b" 1000; settle "${body//\"/}"; expect_like "a saga beyond the balance" 200 '"status":"failed".*insufficient funds'
move saga "$a" "no-$b" 5; settle "${body//\"/}"; expect_like "a saga to nobody fails after its first step" 200 '"status":"failed".*there is no account'
for tenths in {1..50}; do [ "$(balance "$a")" = 55 ] && break; sleep 0.1; done
expect_equal "and the first step is compensated" "55 45" "$(balance "$a") $(balance "$b")"

# What a saga may ask of an account at any time, also when there is nothing to undo.
c="c-$unique"
open "$c" 10
call transfer_account "$c" withdrawFor '{"saga":"s1","amount":4}'; expect "a saga's withdrawal" 200 6
call transfer_account "$c" undo '"s1"'; expect "is undone" 200 null
call transfer_account "$c" undo '"s1"'; expect "once" 200 null
expect_equal "and paid back" 10 "$(balance "$c")"
call transfer_account "$c" depositFor '{"saga":"s2","amount":5}'; expect "a saga's deposit" 200 15
call transfer_account "$c" withdraw 15; expect "is spent" 200 0
call transfer_account "$c" undo '"s2"'; expect "and undone" 200 null
call transfer_account "$c" deposit 7;   expect "after a debt" 200 2
call transfer_account "$c" withdrawFor '{"saga":"s3","amount":500}'; expect_like "a withdrawal that is refused" 409 'insufficient funds'
call transfer_account "$c" undo '"s3"'; expect "has nothing to undo" 200 null
call transfer_account "$c" depositFor '{"saga":"s4","amount":1}'; expect "a deposit" 200 3
call transfer_account "$c" settle '"s4"'; expect "that is settled" 200 null
call transfer_account "$c" undo '"s4"'; expect "stays" 200 null
expect_equal "so there are" 3 "$(balance "$c")"

# Ten accounts that all pay each other, in both ways at once: nothing is refused, no money made or lost.
for number in {0..9}; do open "hot$number-$unique" 1000; done
mkdir "$work/many"
for number in {0..199}; do
    way=transaction
    ((number % 4)) || way=saga
    from=$((number % 10)) to=$(((number + 1 + number / 10 % 9) % 10))
    printf 'next\nurl = "%s"\noutput = "%s"\ndata = "{\\"from\\":\\"hot%d-%s\\",\\"to\\":\\"hot%d-%s\\",\\"amount\\":3}"\n' \
        "$BASE/transfer/$way" "$work/many/$way-$number" "$from" "$unique" "$to" "$unique"
done | sed 1d >"$work/config"
curl -s -Z --parallel-immediate --parallel-max 32 -K "$work/config" 2>/dev/null
expect_equal "150 concurrent transactions" 150 "$(grep -lE '^\{"from":[0-9]+,"to":[0-9]+\}$' "$work/many"/transaction-* | wc -l)"
ended=0
for file in "$work/many"/saga-*; do
    [[ $(<"$file") =~ ^\"([^\"]+)\"$ ]] && settle "${BASH_REMATCH[1]}" && [[ $body =~ \"succeeded\" ]] && ended=$((ended + 1))
done
expect_equal "and 50 sagas beside them" 50 "$ended"
sum=0
for number in {0..9}; do sum=$((sum + $(balance "hot$number-$unique"))); done
expect_equal "keep the sum" 10000 "$sum"
finish
