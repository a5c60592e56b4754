#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
# USERS=100 TITLES=1000 COMPOSES=1000 tries it at the size of the usual load.
. "$(dirname "$0")/../lib.sh"
begin media "${1:-}"

user="ann-$unique"
title="Alien $unique"
movie="movie-$unique"
text=$(printf 'x%.0s' {1..256})
# compose USER PASSWORD TITLE RATING [TEXT [curl arguments]]
compose() {
    http POST /media/compose "${@:6}" \
        --data-binary "{\"username\":\"$1\",\"password\":\"$2\",\"title\":\"$3\",\"rating\":$4,\"text\":\"${5:-$text}\"}"
}
# audit: sets counts to how many reviews came since the last look: in all, by user, by movie; and pending.
seen=(0 0 0)
audit() {
    http GET /media/audit
    local now=("$(number reviews)" "$(number by_user)" "$(number by_movie)")
    counts="$((now[0] - seen[0])) $((now[1] - seen[1])) $((now[2] - seen[2])) $(number pending)"
    seen=("${now[@]}")
}

post /media/register_user "{\"username\":\"$user\",\"password\":\"secret\"}"; expect "register a user" 200 "{\"username\":\"$user\"}"
post /media/register_movie "{\"title\":\"$title\",\"id\":\"$movie\"}"; expect "register a movie" 200 "{\"title\":\"$title\",\"id\":\"$movie\"}"
audit; expect_like "audit" 200 '^\{"reviews":[0-9]+,"by_user":[0-9]+,"by_movie":[0-9]+,"pending":0\}$'

compose "$user" secret "$title" 8; expect_like "compose answers the review's id" 200 '^"[0-9a-f-]{36}"$'
review=${body//\"/}
audit; expect_equal "one review in each of the three places, none pending" "1 1 1 0" "$counts"
call media_review "${review:0:2}" get "\"$review\""
expect_like "under its id" 200 "^\{\"id\":\"$review\",\"user\":\"$user\",\"movie\":\"$movie\",\"title\":\"$title\",\"rating\":8,\"text\":\"$text\",\"at\":[0-9]+\}$"
call media_user_review "$user" ids null;   expect "under its user" 200 "[[\"review/000000000\",\"$review\"]]"
call media_movie_review "$movie" ids null; expect "under its movie" 200 "[[\"review/000000000\",\"$review\"]]"

compose "$user" wrong "$title" 8;            expect_like "a wrong password" 409 '"aborted"'
compose "nobody-$unique" secret "$title" 8;  expect_like "an unknown user" 409 '"aborted"'
compose "$user" secret "Aliens $unique" 8;   expect_like "an unregistered title" 409 '"aborted"'
compose "$user" secret "$title" 11;          expect_like "a rating beyond 10" 409 '"aborted"'
compose "$user" secret "$title" '"8"';       expect_like "a rating that is no number" 409 '"aborted"'
compose "$user" secret "$title" 8 "$text$text$text$text$text"; expect_like "a text too long" 409 '"aborted"'
for input in null '{}' "{\"username\":\"$user\",\"password\":\"secret\",\"title\":\"$title\",\"rating\":1}"; do
    post /media/compose "$input"; expect_like "compose $input" 409 '"aborted"'
done
audit; expect_equal "refused composes store nothing" "0 0 0 0" "$counts"

post /media/register_user "{\"username\":\"$user\",\"password\":\"other\"}"; expect_like "a taken name" 409 '"aborted"'
post /media/register_movie "{\"title\":\"$title\",\"id\":\"other\"}"; expect_like "a registered title" 409 '"aborted"'
post /media/register_movie "{\"title\":\"$title 2\",\"id\":\"$movie\"}"; expect_like "a registered id" 409 '"aborted"'
for input in null '{}' '{"username":"","password":"x"}' '{"username":"x","password":7}'; do
    post /media/register_user "$input"; expect_like "register_user $input" 409 '"aborted"'
done
compose "$user" other "$title" 8; expect_like "the password of the refused registration" 409 '"aborted"'

compose "$user" secret "$title" 3 "$text" -H "Idempotency-Key: once-$unique"; expect_like "with a key" 200 '^"'; first=$body
compose "$user" secret "$title" 3 "$text" -H "Idempotency-Key: once-$unique"; expect "sent again: the same id" 200 "$first"
audit; expect_equal "composed once" "1 1 1 0" "$counts"

# requests PATH COUNT BODY: a curl configuration of COUNT requests; %1$d in BODY is the number, %2$d and %3$d
# are a user and a title.
users=${USERS:-10} titles=${TITLES:-20} composes=${COMPOSES:-200}
requests() {
    local number data
    mkdir -p "$work/$1"
    for ((number = 0; number < $2; number++)); do
        data=${3//@user/$((number % users))}
        data=${data//@title/$((number * 7 % titles))}
        printf 'next\nurl = "%s"\noutput = "%s"\ndata = "%s"\n' "$BASE/media/$1" "$work/$1/$number" "${data//\"/\\\"}"
    done | sed 1d >"$work/config"
    curl -s -Z --parallel-immediate --parallel-max 50 -K "$work/config" 2>/dev/null
}
requests register_user "$users" "{\"username\":\"u@user-$unique\",\"password\":\"p@user\"}"
requests register_movie "$titles" "{\"title\":\"t@title-$unique\",\"id\":\"m@title-$unique\"}"
expect_equal "users registered at once" "$users" "$(awk 1 "$work"/register_user/* | grep -c '^{"username":"u')"
expect_equal "movies registered at once" "$titles" "$(awk 1 "$work"/register_movie/* | grep -c '^{"title":"t' )"
requests compose "$composes" "{\"username\":\"u@user-$unique\",\"password\":\"p@user\",\"title\":\"t@title-$unique\",\"rating\":5,\"text\":\"$text\"}"
expect_equal "$composes concurrent composes get ids of their own" "$composes" "$(awk 1 "$work"/compose/* | grep -E '^"[0-9a-f-]{36}"$' | sort -u | wc -l)"
audit; expect_equal "and are in each of the three places" "$composes $composes $composes 0" "$counts"
finish
