#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin chain "${1:-}"

key="k-$unique"
req() { http POST /chain/req --data-binary "$1" "${@:2}"; }

for spread in false true; do
    input="{\"key\":\"$key\",\"spread\":$spread}"
    req "$input"; expect "spread $spread: the first call" 200 '[[0]]'
    req "$input"; expect "spread $spread: the second" 200 '[[1]]'
    req "$input" -H "Idempotency-Key: once-$spread-$unique"; expect "spread $spread: with a key" 200 '[[2]]'
    req "$input" -H "Idempotency-Key: once-$spread-$unique"; expect "spread $spread: sent again" 200 '[[2]]'
    req "$input"; expect "spread $spread: counted once" 200 '[[3]]'

    mkdir "$work/$spread"
    curl -s -Z --parallel-immediate --parallel-max 32 -d "{\"key\":\"$key-p\",\"spread\":$spread}" -o "$work/$spread/#1" "$BASE/chain/req?[1-300]" 2>/dev/null
    wanted=$(seq -f '[[%g]]' -s ' ' 0 299)
    expect_equal "spread $spread: 300 concurrent calls see 0 to 299" "$wanted" "$(awk 1 "$work/$spread"/* | sort -t '[' -k 3n | paste -s -d ' ')"
done
req "{\"key\":\"$key\"}"; expect "spread is false when left out" 200 '[[4]]'

for input in null '{}' '{"key":7}'; do
    req "$input"
    expect_like "$input is refused" 409 '"aborted"'
done
finish
