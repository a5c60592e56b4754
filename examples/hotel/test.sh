#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin hotel "${1:-}"

h="hotel-$unique"
f="flight-$unique"
reserve() { http POST /hotel/reserve --data-binary "{\"user\":\"$1\",\"flight\":\"$2\",\"hotel\":\"$3\"}" "${@:4}"; }
# audit: sets hotel_left, flight_left (of the two just named), orders and locks.
audit() {
    http GET /hotel/audit
    hotel_left=$(number "$h")
    flight_left=$(number "$f")
    orders=$(number orders)
    locks=$(number locks)
}
add() {
    post /hotel/add_hotel "{\"id\":\"$h\",\"capacity\":$1}"; expect "add a hotel" 200 "{\"id\":\"$h\",\"capacity\":$1}"
    post /hotel/add_flight "{\"id\":\"$f\",\"capacity\":$2}"; expect "add a flight" 200 "{\"id\":\"$f\",\"capacity\":$2}"
}

add 4 3
audit
before=$orders
expect_like "audit" 200 '^\{"hotels":\{.*\},"flights":\{.*\},"orders":[0-9]+,"locks":0\}$'
for user in 0 1 2; do
    reserve "user$user" "$f" "$h"; expect_like "user $user gets both" 200 '^\[true,"'
done
reserve user3 "$f" "$h"; expect "the next does not get the flight" 200 "[false,\"flight $f is full\"]"
audit; expect_equal "nor the room" "1 0 3 0" "$hotel_left $flight_left $((orders - before)) $locks"

h=$h-2 f=$f-2
add 1 5
reserve ann "$f" "$h"; expect_like "the last room" 200 '^\[true,"'
reserve bob "$f" "$h"; expect "no room" 200 "[false,\"hotel $h is full\"]"
audit; expect_equal "and no seat taken" "0 4 4 0" "$hotel_left $flight_left $((orders - before)) $locks"
h=$h-3 f=$f-3
add 0 0
reserve ann "$f" "$h"; expect "of two reasons the hotel comes first" 200 "[false,\"hotel $h is full\"]"
reserve ann "$f" no-such; expect "an unknown hotel" 200 '[false,"there is no hotel no-such"]'
h=$h-4 f=$f-4
add 9 9
reserve ann no-such "$h"; expect "an unknown flight" 200 '[false,"there is no flight no-such"]'
audit; expect_equal "changed nothing" "9 9" "$hotel_left $flight_left"

reserve ann "$f" "$h" -H "Idempotency-Key: yes-$unique"; expect_like "with a key" 200 '^\[true,"'; first=$body
reserve ann "$f" "$h" -H "Idempotency-Key: yes-$unique"; expect "sent again" 200 "$first"
audit; expect_equal "reserves once" "8 8 5 0" "$hotel_left $flight_left $((orders - before)) $locks"
reserve ann "$f" no-such -H "Idempotency-Key: no-$unique"; expect_like "a refusal with a key" 200 '^\[false,"'; first=$body
reserve ann "$f" no-such -H "Idempotency-Key: no-$unique"; expect "sent again" 200 "$first"
call hotel_order "$f" orders null; expect_like "the order tells who and where" 200 "^\[\[\"order/0+\",\{\"user\":\"ann\",\"hotel\":\"$h\",\"at\":[0-9]+\}\]\]$"

post /hotel/add_hotel "{\"id\":\"$h\",\"capacity\":1}"; expect_like "a hotel that exists" 409 '"aborted"'
for input in null '{}' "{\"id\":\"\",\"capacity\":1}" "{\"id\":7,\"capacity\":1}" "{\"id\":\"x\"}" "{\"id\":\"x\",\"capacity\":-1}" "{\"id\":\"x\",\"capacity\":1.5}"; do
    post /hotel/add_hotel "$input"; expect_like "add_hotel $input" 409 '"aborted"'
    post /hotel/add_flight "$input"; expect_like "add_flight $input" 409 '"aborted"'
done
for input in null '{}' "{\"user\":\"u\",\"flight\":\"$f\"}" "{\"user\":7,\"flight\":\"$f\",\"hotel\":\"$h\"}"; do
    post /hotel/reserve "$input"; expect_like "reserve $input" 409 '"aborted"'
done

# 120 at once for two hotels and two flights with 100 places in all; every success is one room, one seat, one order.
first_hotel=$h-c first_flight=$f-c
h=$first_hotel f=$first_flight; add 70 30
h=$first_hotel-d f=$first_flight-d; add 30 70
audit; before=$orders
mkdir "$work/many"
for number in {1..120}; do
    hotel=$first_hotel flight=$first_flight
    ((number % 2)) && hotel+=-d
    ((number % 3)) && flight+=-d
    printf 'next\nurl = "%s"\noutput = "%s"\ndata = "{\\"user\\":\\"u\\",\\"flight\\":\\"%s\\",\\"hotel\\":\\"%s\\"}"\n' \
        "$BASE/hotel/reserve" "$work/many/$number" "$flight" "$hotel"
done | sed 1d >"$work/config"
curl -s -Z --parallel-immediate --parallel-max 32 -K "$work/config" 2>/dev/null &
reserving=$!
mkdir "$work/audits"
curl -s -Z --parallel-max 2 -o "$work/audits/#1" "$BASE/hotel/audit?[1-30]" 2>/dev/null
wait "$reserving"
expect_equal "audits between find no reservation half done" 30 "$(awk 1 "$work/audits"/* | grep -c '"locks":0}$')"
successes=$(awk 1 "$work/many"/* | grep -c '^\[true,')
expect_equal "every request is answered" 120 "$(awk 1 "$work/many"/* | grep -cE '^\[(true|false),"')"
audit
rooms=$((30 - hotel_left)) seats=$((70 - flight_left))
h=$first_hotel f=$first_flight; audit
rooms=$((rooms + 70 - hotel_left)) seats=$((seats + 30 - flight_left))
expect_equal "successes = rooms = seats = orders" "$successes $successes $successes 0" "$rooms $seats $((orders - before)) $locks"
# Places are only ever taken here, so whoever was refused still finds one of the two full.
audit; full_hotel=$hotel_left full_flight=$flight_left
h=$first_hotel-d f=$first_flight-d; audit
wrongly=0
for number in {1..120}; do
    grep -q '^\[false,' "$work/many/$number" || continue
    rooms=$full_hotel seats=$full_flight
    ((number % 2)) && rooms=$hotel_left
    ((number % 3)) && seats=$flight_left
    ((rooms == 0 || seats == 0)) || wrongly=$((wrongly + 1))
done
expect_equal "nobody is refused while there is a place" 0 "$wrongly"
finish
