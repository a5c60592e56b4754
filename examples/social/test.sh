#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin social "${1:-}"

ann="ann-$unique"
bob="bob-$unique"
cid="cid-$unique"
register() { post /social/register "{\"user\":\"$1\"}"; }
follow() { post /social/follow "{\"user\":\"$1\",\"followee\":\"$2\"}"; }
unfollow() { post /social/unfollow "{\"user\":\"$1\",\"followee\":\"$2\"}"; }
compose() { http POST /social/compose --data-binary "{\"user\":\"$1\",\"text\":\"$2\"}" "${@:3}"; }
edges() { http GET "/social/edges?user=$1"; expect "edges of $1" 200 "{\"followees\":[$2],\"followers\":[$3]}"; }
# texts PATH USER START STOP: the texts of a page of posts.
texts() {
    http GET "/social/$1?user=$2&start=$3&stop=$4"
    grep -o '"text":"[^"]*"' <<<"$body" | cut -d '"' -f 4 | paste -s -d ' '
}
# expect_home NAME WANTED USER: what the home timeline has come to be; posts travel by messages.
expect_home() {
    local tenths
    for ((tenths = 0; tenths < 100; tenths++)); do
        [ "$(texts home "$3" 0 100)" = "$2" ] && break
        sleep 0.1
    done
    expect_equal "$1" "$2" "$(texts home "$3" 0 100)"
}

for user in "$ann" "$bob" "$cid"; do register "$user"; expect "register" 200 "{\"user\":\"$user\"}"; done
register "$ann"; expect_like "a taken name" 409 '"aborted"'
edges "$ann" '' ''

follow "$bob" "$ann"; expect "follow" 200 "{\"user\":\"$bob\",\"followee\":\"$ann\"}"
follow "$cid" "$ann"
follow "$cid" "$bob"
edges "$ann" '' "\"$bob\",\"$cid\""
edges "$bob" "\"$ann\"" "\"$cid\""
edges "$cid" "\"$ann\",\"$bob\"" ''
follow "$bob" "$ann"; expect "following twice" 200 "{\"user\":\"$bob\",\"followee\":\"$ann\"}"
edges "$ann" '' "\"$bob\",\"$cid\""
edges "$bob" "\"$ann\"" "\"$cid\""
follow "$bob" "nobody-$unique"; expect_like "following nobody" 409 '"aborted"'
follow "nobody-$unique" "$bob"; expect_like "nobody following" 409 '"aborted"'
follow "$bob" "$bob";           expect_like "following oneself" 409 '"aborted"'
edges "$bob" "\"$ann\"" "\"$cid\""
http GET "/social/edges?user=nobody-$unique"; expect_like "edges of nobody" 409 '"aborted"'

compose "$ann" first
expect_like "compose answers the post" 200 "^\{\"id\":\"[0-9a-f-]{36}\",\"user\":\"$ann\",\"text\":\"first\",\"at\":[0-9]+\}$"
compose "$bob" second
compose "$ann" third -H "Idempotency-Key: once-$unique"; expect_like "with a key" 200 '"third"'; first=$body
compose "$ann" third -H "Idempotency-Key: once-$unique"; expect "sent again" 200 "$first"
expect_equal "the own timeline, newest first" "third first" "$(texts timeline "$ann" 0 10)"
expect_equal "a page of it" "first" "$(texts timeline "$ann" 1 2)"
expect_equal "beyond its end" "" "$(texts timeline "$ann" 2 10)"
http GET "/social/timeline?user=$ann"; expect_like "start and stop may be left out" 200 '^\[\{.*\}\]$'
expect_home "the home timeline of one followee" "third first" "$bob"
for tenths in {1..100}; do [ "$(texts home "$cid" 0 100 | wc -w)" = 3 ] && break; sleep 0.1; done
home=$(texts home "$cid" 0 100)
expect_equal "that of two followees has all posts" "first second third" "$(tr ' ' '\n' <<<"$home" | sort | paste -s -d ' ')"
expect_equal "those of one author in their order" "third first" "$(sed 's/ *second */ /; s/^ //; s/ $//' <<<"$home")"
expect_home "who follows nobody has none" "" "$ann"

unfollow "$bob" "$ann"; expect "unfollow" 200 "{\"user\":\"$bob\",\"followee\":\"$ann\"}"
unfollow "$bob" "$ann"; expect "unfollowing twice" 200 "{\"user\":\"$bob\",\"followee\":\"$ann\"}"
edges "$bob" '' "\"$cid\""
edges "$ann" '' "\"$cid\""
compose "$ann" fourth
for tenths in {1..100}; do [[ $(texts home "$cid" 0 1) = fourth ]] && break; sleep 0.1; done
expect_equal "who follows gets the next post" fourth "$(texts home "$cid" 0 1)"
expect_home "who unfollowed does not" "third first" "$bob"

for input in null '{}' '{"user":""}' '{"user":7}'; do
    for route in register follow unfollow compose; do post "/social/$route" "$input"; expect_like "$route $input" 409 '"aborted"'; done
done
compose "nobody-$unique" x; expect_like "a post of nobody" 409 '"aborted"'
compose "$ann" "";          expect_like "an empty post" 409 '"aborted"'
for page in "start=-1" "start=x" "start=5&stop=4" "start=0&stop=101" "start=0.5"; do
    http GET "/social/timeline?user=$ann&$page"; expect_like "$page" 409 '"aborted"'
done

# A fan-out of more than one transaction: 600 followers, who all follow at once.
for number in {1..600}; do
    for route in register follow; do
        printf 'next\nurl = "%s"\noutput = "/dev/null"\ndata = "{\\"user\\":\\"f%d-%s\\",\\"followee\\":\\"%s\\"}"\n' \
            "$BASE/social/$route" "$number" "$unique" "$bob" >>"$work/$route"
    done
done
for route in register follow; do
    sed -i 1d "$work/$route"
    curl -s -Z --parallel-immediate --parallel-max 32 -K "$work/$route" 2>/dev/null
done
http GET "/social/edges?user=$bob"
expect_equal "601 followers" 601 "$(grep -o '"[fc][^",]*-[^",]*"' <<<"${body#*followers}" | wc -l)"
compose "$bob" "to all"
for number in 1 300 600; do expect_home "follower $number gets the post once" "to all" "f$number-$unique"; done

# Following and unfollowing at once: whatever comes out, both ends agree.
for round in {1..40}; do
    for route in follow unfollow; do
        for pair in "$ann $cid" "$cid $ann"; do
            printf 'next\nurl = "%s"\noutput = "/dev/null"\ndata = "{\\"user\\":\\"%s\\",\\"followee\\":\\"%s\\"}"\n' "$BASE/social/$route" $pair
        done
    done
done | sed 1d >"$work/config"
curl -s -Z --parallel-immediate --parallel-max 16 -K "$work/config" 2>/dev/null
http GET "/social/edges?user=$ann"; a=$body
http GET "/social/edges?user=$cid"; c=$body
# has TEXT EDGES NAME: whether a name is among the followees or followers.
has() { local list=${2#*\"$1\":[}; [[ ${list%%]*} == *"\"$3\""* ]] && echo yes || echo no; }
expect_equal "ann follows cid ⇔ cid is followed by ann" "$(has followees "$a" "$cid")" "$(has followers "$c" "$ann")"
expect_equal "cid follows ann ⇔ ann is followed by cid" "$(has followees "$c" "$ann")" "$(has followers "$a" "$cid")"
finish
