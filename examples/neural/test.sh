#!/usr/bin/env bash
# test.sh [BASE]: checks the contract in README.md on the node at BASE, or on one of its own.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
begin neural "${1:-}"

# expected LAYERS INPUT: class and outputs of the made-up network, computed by awk.
expected() {
    awk -v layers="$1" -v input="$2" 'BEGIN {
        depth = split(layers, width, ","); split(input, value, ",")
        for (layer = 2; layer <= depth; layer++) {
            for (neuron = 1; neuron <= width[layer]; neuron++) {
                sum = 0
                for (i = 1; i <= width[layer - 1]; i++) sum += value[i] * weight(at++)
                next_value[neuron] = 1 / (1 + exp(-(sum + weight(at++))))
            }
            for (neuron in next_value) value[neuron] = next_value[neuron]
        }
        best = 1
        for (i = 2; i <= width[depth]; i++) if (value[i] > value[best]) best = i
        printf "%d", best - 1
        for (i = 1; i <= width[depth]; i++) printf " %.12f", value[i]
    }
    function weight(i) { return ((i * 37 + 11) % 129 - 64) / 32 }'
}

# predict NETWORK LAYERS INPUT: the reply must agree with awk to nine digits.
predict() {
    post /neural/predict "{\"name\":\"$1\",\"input\":[$3]}"
    expect_like "predict $1 $3" 200 '^\{"class":[0-9]+,"outputs":\[[-0-9.e,]+\]\}$'
    local got
    got=$(sed -E 's/.*"class":([0-9]+),"outputs":\[(.*)\].*/\1 \2/; s/,/ /g' <<<"$body")
    awk -v wanted="$(expected "$2" "$3")" -v got="$got" 'BEGIN {
        n = split(wanted, w, " "); if (split(got, g, " ") != n || w[1] != g[1]) exit 1
        for (i = 2; i <= n; i++) { d = w[i] - g[i]; if (d > 1e-9 || d < -1e-9) exit 1 } }'
    report "predict $1 $3 agrees with awk" $? "wanted: $(expected "$2" "$3"), got: $got"
}

for network in made-4-2-3 made-13-5-3; do
    post /neural/load "@$here/fixtures/$network.json"
    expect_like "load $network" 200 "^\{\"name\":\"$network\",\"layers\":\[[0-9,]+\],\"weights\":(19|88)\}$"
done
predict made-4-2-3 4,2,3 0.25,0.5,0.125,1
predict made-4-2-3 4,2,3 -3,0,1e-3,2.5
predict made-13-5-3 13,5,3 0.1,0.5,0.03,0.2,0.3,0.2,0.3,0.4,0.2,0.3,0.3,0.6,0.4
predict made-13-5-3 13,5,3 1,1,1,1,1,1,1,1,1,1,1,1,1

name="net-$unique"
post /neural/load "{\"name\":\"$name\",\"layers\":[1,1],\"weights\":[0,0]}"; expect_like "the smallest network" 200 '"weights":2'
post /neural/predict "{\"name\":\"$name\",\"input\":[7]}"; expect "sigmoid(0)" 200 '{"class":0,"outputs":[0.5]}'

post /neural/predict "{\"name\":\"none-$unique\",\"input\":[1]}"; expect_like "an unknown network" 404 '"error"'
for input in 'null' '[]' '[1,2]' '["1"]' '[null]' '[1e300]' '7' '{}'; do
    post /neural/predict "{\"name\":\"$name\",\"input\":$input}"
    expect_like "input $input" 400 '"error":"input'
done
for rest in '"layers":[1,1]' '"layers":[1,1],"weights":[1]' '"layers":[1,1],"weights":[1,2,3]' '"layers":[1,1],"weights":[1,"2"]' \
    '"layers":[1,1],"weights":[1,1e39]' '"layers":[1],"weights":[]' '"layers":[0,1],"weights":[1]' '"layers":[1.5,1],"weights":[1]' \
    '"layers":[1024,1024],"weights":[]' '"weights":[1,2]' '"layers":"1,1","weights":[1,2]'; do
    post /neural/load "{\"name\":\"$name\",$rest}"
    expect_like "load $rest" 400 '"error":"'
done
for text in '' '{' 'null' '[]' '{"layers":[1,1],"weights":[0,0]}' '{"name":"","layers":[1,1],"weights":[0,0]}' '{"name":"a/b","layers":[1,1],"weights":[0,0]}'; do
    post /neural/load "$text"
    expect_like "load ${text:-nothing}" 400 '"error":"'
done
post /neural/predict "{\"name\":\"$name\",\"input\":[7]}"; expect "refused loads changed nothing" 200 '{"class":0,"outputs":[0.5]}'
finish
