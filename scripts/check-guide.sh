#!/usr/bin/env bash
# check-guide.sh [GUIDE]: runs the shell snippets of a guide, docs/guide/records.md unless said, from top to bottom on a
# node of its own, and checks that they answer what the guide says. Needs bash and curl; BINARY as in examples/lib.sh.
#
# What a command answers is in comments below it that begin with {, [, a quote, `etag:`, OK, `nothing`, or a number. They
# hold where the texts between `…` come in the output, in this order. A number of three digits is the status. Where no
# status is said, all have to be 2xx. Other comments are for people. Lines with `millrace serve` are left out.
. "$(dirname "$0")/../examples/lib.sh"

guide=$(realpath "${1:-$root/docs/guide/records.md}")

start_node() {
    local server port
    server=$(binary) || exit 1
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && continue
        BASE="http://127.0.0.1:$port"
        "$server" serve --data "$work/data" --http "127.0.0.1:$port" >"$work/server.log" 2>&1 &
        node_pid=$!
        wait_until_healthy && return
        wait "$node_pid" 2>/dev/null
        node_pid=
    done
    echo "the server did not start:" >&2
    cat "$work/server.log" >&2
    exit 1
}

# snippets: each line of the guide's shell snippets, its number before it; an empty line between snippets.
snippets() {
    awk '/^```sh$/ { inside = 1; next } /^```/ { if (inside) print NR; inside = 0 } inside { print NR, $0 }' "$guide" |
        grep -v 'millrace serve' | sed "s#http://127\.0\.0\.1:8080#$BASE#g; s#http://old\.example\.org:8080#$BASE#g"
}

# holds WANTED: what a comment says of the last command's output and statuses.
holds() {
    local wanted=$1 rest piece
    if [[ $wanted =~ ^([1-5][0-9][0-9])([ ,:]|$)(.*) ]]; then
        wanted=${BASH_REMATCH[3]}
        said_status=${BASH_REMATCH[1]}
        [ "$(tail -1 "$work/statuses")" = "$said_status" ] || return
        [ "${BASH_REMATCH[2]}" = , ] && return
        wanted=${wanted//: /…}
    fi
    rest=$(<"$work/out")
    if [ "$wanted" = nothing ]; then
        [ -z "$rest" ]
        return
    fi
    while [ -n "$wanted" ]; do
        piece=${wanted%%…*}
        wanted=${wanted#"$piece"}
        wanted=${wanted#…}
        piece=${piece#"${piece%%[! ]*}"}
        [[ $rest == *"$piece"* ]] || return
        rest=${rest#*"$piece"}
    done
}

# judge: whether the last command, of line $line, answered what was said.
judge() {
    [ -n "$command" ] || return
    local wanted said_status=
    for wanted in "${said[@]}"; do
        holds "$wanted"
        report "line $line: $wanted" $? "got: $(head -c 600 "$work/out") $(head -c 600 "$work/notes")"
    done
    if [ -z "$said_status" ]; then
        ! grep -qv '^2' "$work/statuses"
        report "line $line: ${command:0:100}" $? "got: $(head -c 600 "$work/out") $(head -c 600 "$work/notes")"
    fi
    command=
    said=()
}

# Notes the status beside the output. A stream (-N) has no end: it is cut off, which is no failure.
curl() {
    local result=0 seconds=60
    [[ " $* " == *" -N "* ]] && seconds=2
    command curl -sS -m "$seconds" -w '%{stderr}<%{http_code}>' "$@" 2>>"$work/notes" || result=$?
    [ "$seconds $result" = "2 28" ] || return "$result"
}
export -f curl
export work

start_node
cd "$work" || exit 1
command=
line=
said=()
text=
while read -r number content; do
    content=${content-}
    if [ -z "$text" ] && [[ $content == '# '* ]]; then
        content=${content#\# }
        [[ $content =~ ^([\{\[\"]|etag:|OK|nothing$|[0-9]) ]] && said+=("$content")
        continue
    fi
    if [ -z "$text" ]; then
        [ -n "$content" ] || continue
        judge
        line=$number
    fi
    text+=$content$'\n'
    # A command goes on until bash can read it.
    [ -z "$(bash -n <<<"$text" 2>&1)" ] || continue
    command=$text
    text=
    : >"$work/notes"
    eval "$command" >"$work/out" 2>>"$work/notes"
    grep -oE '<[0-9]{3}>' "$work/notes" | tr -d '<>' >"$work/statuses"
done < <(snippets)
judge
[ -z "$text" ]
report "the last snippet is whole" $? "$text"
finish
