#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin url-shortener "${1:-}"

site="https://example.com/$unique"
shorten() { http POST /url/shorten --data-binary "$1" "${@:2}"; }
# short N: the N-th code of the last reply, from 1.
short() { grep -o '"[^"]*"\]' <<<"$body" | sed -n "$1s/\"\]//; $1s/\"//; $1p"; }

shorten "[\"$site/a\",\"$site/b?x=1#y\"]"
expect_like "two new URLs" 200 '^\[\["NotFound","[A-Za-z0-9_-]{8}"\],\["NotFound","[A-Za-z0-9_-]{8}"\]\]$'
a=$(short 1) b=$(short 2)
shorten "[\"$site/b?x=1#y\",\"$site/c\",\"$site/a\"]"; c=$(short 2)
expect "known and new" 200 "[[\"Found\",\"$b\"],[\"NotFound\",\"$c\"],[\"Found\",\"$a\"]]"
expect_equal "codes of their own" 3 "$(printf '%s\n' "$a" "$b" "$c" | sort -u | wc -l)"
shorten "[\"$site/twice\",\"$site/twice\"]"
expect_like "one URL twice in a request is new once" 200 '^\[\["(NotFound|Found)","[^"]*"\],\["(NotFound|Found)","[^"]*"\]\]$'
expect_equal "and has one code" "$(short 1) 1" "$(short 2) $(grep -o NotFound <<<"$body" | wc -l)"
shorten '[]'; expect "nothing" 200 '[]'

http GET "/url/$b"; expect "the short URL leads there" 302 ''
expect_header "by Location" "^location: $site/b\?x=1#y.?$"
http GET "/url/no-such-$unique"; expect_like "an unknown code" 404 '"error"'

many=$(printf "\"$site/%s\"," {1..101})
for input in null '"x"' '{}' '[7]' '["ftp://x"]' '["javascript:alert(1)"]' '["https://"]' '["https://a b"]' '["https://é"]' "[${many%,}]"; do
    shorten "$input"; expect_like "shorten ${input:0:40}" 409 '"aborted"'
done
shorten "[\"$site/d\",\"bad\"]"; expect_like "one wrong URL" 409 '"aborted"'
shorten "[\"$site/d\"]";         expect_like "and the others are not stored" 200 '^\[\["NotFound"'

shorten "[\"$site/once\"]" -H "Idempotency-Key: once-$unique"; expect_like "with a key" 200 '^\[\["NotFound"'; first=$body
shorten "[\"$site/once\"]" -H "Idempotency-Key: once-$unique"; expect "sent again: the first reply" 200 "$first"
shorten "[\"$site/once\"]"; expect_like "and without" 200 '^\[\["Found"'

mkdir "$work/many"
curl -s -Z --parallel-immediate --parallel-max 50 -d "[\"$site/race\"]" -o "$work/many/#1" "$BASE/url/shorten?[1-100]" 2>/dev/null
expect_equal "of 100 concurrent first calls" 100 "$(awk 1 "$work/many"/* | grep -cE '^\[\["(NotFound|Found)",')"
expect_equal "one is the first" 1 "$(awk 1 "$work/many"/* | grep -c NotFound)"
expect_equal "and all get one code" 1 "$(awk 1 "$work/many"/* | grep -oE '"[^"]*"\]\]' | sort -u | wc -l)"

# Many URLs in opposite orders at once: nobody waits for ever.
forward=$(printf "\"$site/o%s\"," {1..40}) backward=$(printf "\"$site/o%s\"," {40..1})
mkdir "$work/orders"
for urls in "$forward" "$backward"; do
    curl -s -Z --parallel-immediate --parallel-max 10 -d "[${urls%,}]" -o "$work/orders/${#urls}-$RANDOM-#1" "$BASE/url/shorten?[1-20]" 2>/dev/null &
done
wait $(jobs -p | grep -vx "$node_pid")
expect_equal "40 requests of 40 URLs make 40" 40 "$(cat "$work/orders"/* | grep -o NotFound | wc -l)"
finish
