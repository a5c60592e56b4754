#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
# EDGES=FILE loads that edge list too and compares its counts with awk's.
. "$(dirname "$0")/../lib.sh"
begin graph "${1:-}"

load() { http POST /graph/load -H 'content-type: text/plain' --data-binary "$1"; }
count() { http GET "/graph/count?k=$1&depth=$2"; }
# Its own names and differences of totals, because the node at BASE may hold a graph already.
p="n$unique-"
load ""; expect_like "an empty load answers the totals" 200 '^\{"keys":[0-9]+,"edges":[0-9]+\}$'
keys=$(number keys)
edges=$(number edges)

load "${p}a ${p}b
${p}a ${p}c

${p}b ${p}d
${p}c	${p}d
${p}d ${p}a"
expect "load" 200 "{\"keys\":$((keys + 4)),\"edges\":$((edges + 5))}"
count "${p}a" 1; expect "depth 1 is the length of the own list" 200 2
count "${p}a" 2; expect "depth 2 adds the lists of its members" 200 4
count "${p}a" 3; expect "depth 3 counts d twice, once a path" 200 6
count "${p}a" 4; expect "a cycle goes on" 200 10
count "${p}x" 3; expect "an absent key" 200 0
load "${p}a ${p}b"; expect "load appends" 200 "{\"keys\":$((keys + 4)),\"edges\":$((edges + 6))}"
count "${p}a" 1; expect "duplicates count" 200 3
count "${p}a" 2; expect "on every path" 200 6
load "__proto__ ${p}y"; count __proto__ 1; expect_like "any name will do" 200 '^[1-9]'
load "${p}s ${p}s
${p}s ${p}s"
count "${p}s" 50; expect "large counts are exact" 200 2251799813685246
count "${p}s" 64; expect_like "a count beyond 2^53 is refused" 422 '"error"'

for text in "${p}a" "${p}a ${p}b ${p}c" "${p}a $(printf 'x%.0s' {1..65})"; do
    load "${p}q ${p}r
$text"
    expect_like "a malformed line is named" 400 '"error":"line 2: '
done
count "${p}q" 1; expect "and nothing of that text is loaded" 200 0
for query in "" "?k=${p}a" "?depth=1" "?k=${p}a&depth=0" "?k=${p}a&depth=65" "?k=${p}a&depth=1.5" "?k=${p}a&depth=x" "?k=&depth=1"; do
    http GET "/graph/count$query"
    expect_like "count$query" 400 '"error"'
done

# compare FILE: loads it under this run's names and compares counts from the node with most edges.
compare() {
    sed "s/^/$p/; s/[ \t]\{1,\}/ $p/" "$1" >"$work/edges"
    awk '{ list[$1] = list[$1] " " $2; count[$1]++ }
         END { for (k in count) if (count[k] > count[top]) top = k
               for (depth = 1; depth <= 4; depth++) {
                   for (k in count) { sum[depth, k] = count[k]
                       if (depth > 1) { n = split(list[k], to, " "); for (i = 1; i <= n; i++) sum[depth, k] += sum[depth - 1, to[i]] } }
                   printf "%s %d %.0f\n", top, depth, sum[depth, top] } }' "$work/edges" >"$work/expected"
    http POST /graph/load -H 'content-type: text/plain' --data-binary "@$work/edges"
    expect_like "load $(wc -l <"$work/edges") edges in one request" 200 '^\{"keys":[0-9]+,"edges":[0-9]+\}$'
    while read -r node depth sum; do
        count "$node" "$depth"
        expect "depth $depth agrees with awk" 200 "$sum"
    done <"$work/expected"
}
awk 'BEGIN { for (i = 0; i < 20000; i++) { a = (i * 7919) % 997; b = (i * 104729 + a) % 1499; print "m" a, "m" b } }' >"$work/made"
compare "$work/made"
[ -z "${EDGES:-}" ] || { p="${p}e-"; compare "$EDGES"; }
finish
