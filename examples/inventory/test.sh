#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
. "$(dirname "$0")/../lib.sh"
begin inventory "${1:-}"

bolt="bolt-$unique"
nut="nut-$unique"
north="north-$unique"
http PUT /schemas/item --data-binary "@$root/examples/inventory/item.json"
[ "$status" = 200 ] || [ "$status" = 201 ]; report "the type is there" $? "$status $body"
http PUT "/records/item/$bolt" --data-binary '{"name":"Bolt M8","stock":10,"mark":5,"price":"0.12","tags":["m8","steel"],"place":{"aisle":"A","shelf":3}}'
expect "a bolt" 201 ''
http PUT "/records/item/$nut" --data-binary '{"name":"Nut M8","stock":4,"mark":1}'
expect "a nut" 201 ''

call inventory "$north" order "{\"order\":\"o1\",\"lines\":[{\"sku\":\"$bolt\",\"count\":7},{\"sku\":\"$nut\",\"count\":2}]}"
expect "an order of both" 200 '"o1"'
http GET "/records/item/$bolt"
expect "has taken bolts" 200 '{"name":"Bolt M8","stock":3,"reserved":7,"mark":5,"price":"0.12","tags":["m8","steel"],"place":{"aisle":"A","shelf":3}}'
call inventory "$north" order "{\"order\":\"o2\",\"lines\":[{\"sku\":\"$nut\",\"count\":1},{\"sku\":\"$bolt\",\"count\":7}]}"
expect_like "a larger one is refused" 409 "\"aborted\".*|.*not enough of $bolt"
http GET "/records/item/$nut"
expect_like "and has taken nothing" 200 '"stock":2,"reserved":2'
for lines in "[{\"sku\":\"$bolt\",\"count\":-7}]" "[{\"sku\":\"$bolt\",\"count\":1.5}]" "[{\"sku\":\"$bolt\"}]" '[{"count":1}]' '[]' null 5; do
    call inventory "$north" order "{\"order\":\"wrong\",\"lines\":$lines}"
    expect_like "an order of $lines" 409 '"aborted"'
done
call inventory "$north" order "{\"order\":\"\",\"lines\":[{\"sku\":\"$bolt\",\"count\":1}]}"
expect_like "an order without a name" 409 '"aborted"'
call inventory "$north" order null
expect_like "an order of nothing" 409 '"aborted"'
call inventory "$north" order "{\"order\":\"o3\",\"lines\":[{\"sku\":\"none-$unique\",\"count\":1}]}"
expect_like "an item that is not there" 404 '"unknown-record"'
call inventory "$north" orders null
expect "the one order is kept" 200 "[[\"o1\",[{\"sku\":\"$bolt\",\"count\":7},{\"sku\":\"$nut\",\"count\":2}]]]"
http PATCH "/records/item/$bolt" --data-binary '[{"op":"increment","path":".stock","value":-4}]'
expect_like "the rule holds for everybody" 409 '"aborted"'

# After the commit, so not at once.
for _ in $(seq 200); do
    call inventory "$bolt" reorders null
    [ "$body" = 1 ] && break
    sleep 0.05
done
expect "falling below the mark is told once" 200 1
call inventory "$north" ship '"o1"'; expect "the order leaves" 200 null
http GET "/records/item/$bolt"
expect_like "and what it had reserved" 200 '"stock":3,"reserved":0'

http GET "/records/item?limit=10&where=$(printf '.tags[*]=="steel" && .stock<5' | od -An -tx1 | tr -d ' \n' | sed 's/../%&/g')&prefix=$bolt"
expect_like "found by tag and stock" 200 "\"id\":\"$bolt\""
http GET "/records/item/changes?limit=1000"
expect_like "the changes tell of it" 200 "\"id\":\"$nut\""
finish
