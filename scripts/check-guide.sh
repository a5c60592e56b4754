#!/usr/bin/env bash
# check-guide.sh [GUIDE…]: runs the shell snippets of guides, all that have some unless said, from top to bottom as a reader
# would, and checks that they answer what the guide says. Needs bash and curl; BINARY as in examples/lib.sh.
#
# Each guide has a folder of its own, which stands for the repository's root and for /tmp; ports from 8080 on, and 9000 of S3,
# stand for free ones. A server is waited for; one that a snippet starts in the foreground goes to the background.
#
# What a command answers stands behind it or in the lines below it, in comments that begin with {, [, a quote, …, `etag:`, OK, null,
# true, false, `nothing`, or a number, or in a json snippet that comes next. Other comments are for people. It is compared with
# all of the output; white space does not count, and these stand for something else:
#   …         any text
#   ID        in commands, too: the id that the last answer began with
#   "…_ms":N  any number
# A number of three digits, alone or before text, is the status; where none is said, all have to be 2xx, and the command succeeds. Behind it, text is
# something that the output contains (`409: insufficient funds`), unless it begins as above or behind a comma (`202, later`).
# A command that only reads is tried again for a while until it answers what was said: what it waits for may take its time.
#
# Marks in the text, which nobody sees:
#   <!-- check: skip -->            do not run the next snippet
#   <!-- check: needs mc -->        run the next snippet only where this program is; otherwise it is told as skipped. Clients of
#                                   S3 are looked for where scripts/s3-environment.sh and `make s3-clients` put them
#   <!-- check: file /tmp/a.ts -->  put the next code block there
#   <!-- check: paths /records/account/1 -->  the table below has paths, several in a cell, and beside them, in code too, what
#                                   each selects in this record
#   <!-- check: run                 run the lines up to the end of the comment, as a snippet;
#   -->                             `files_of GUIDE` makes the files that another guide makes
. "$(dirname "$0")/../examples/lib.sh"

PATIENCE_TENTHS=300
trap 'stop_servers; stop_node' EXIT

stop_servers() {
    local pid
    [ -e "$work/pids" ] || return
    while read -r pid; do
        while kill -KILL "$pid" 2>/dev/null; do sleep 0.02; done
    done <"$work/pids"
    rm -f "$work/pids"
}

# prepare: a folder for a guide, four free ports in a row, and what snippets start as `millrace`.
prepare() {
    local tries port
    place=$work/$(basename "$guide" .md)
    mkdir -p "$place/target/release" "$place/bin"
    ln -s "$root/examples" "$place/examples"
    cat >"$place/bin/millrace" <<END
#!/bin/sh
case \$1 in serve | dev)
    echo \$\$ >>"$work/pids"
    exec >"$place/server.log" 2>&1 ;;
esac
exec "$server" "\$@"
END
    chmod +x "$place/bin/millrace"
    ln -s "$place/bin/millrace" "$place/target/release/millrace"
    for tries in 1 2 3 4 5; do
        first_port=$((20000 + RANDOM % 12000))
        for port in 0 1 2 3; do
            (exec 3<>"/dev/tcp/127.0.0.1/$((first_port + port))") 2>/dev/null && continue 2
        done
        break
    done
    export MILLRACE_HTTP=127.0.0.1:$first_port MILLRACE_URL=http://127.0.0.1:$first_port TMPDIR=$place
}

# here: text of a guide with the ports and folders of this run.
here() {
    sed "s#127\.0\.0\.1:8080#127.0.0.1:$first_port#g; s#old\.example\.org:8080#127.0.0.1:$first_port#g
         s#127\.0\.0\.1:8081#127.0.0.1:$((first_port + 1))#g; s#127\.0\.0\.1:\(8090\|9000\)#127.0.0.1:$((first_port + 2))#g
         s#minio\.example:9000#127.0.0.1:$((first_port + 3))#g
         s#/tmp/#$place/#g"
}

# files_of GUIDE: makes the files that another guide's snippets make with cat.
files_of() {
    awk '/^cat > .*<<.END.$/ { inside = 1; print "mkdir -p \"$(dirname " $3 ")\"" } inside; /^END$/ { inside = 0 }' "$root/$1" |
        here | bash
}

# pieces: what there is to do in a guide, a line each: its number, what it is, and content. `shell` is a line of a snippet, `end`
# is behind its last one, `file` names a file and `content` is a line of it, `answer` is a json snippet,
# `record` and `row` are of a table of paths.
pieces() {
    awk -v OFS=$'\x1f' '
        /^<!-- check: skip -->$/ { skip = 1; next }
        /^<!-- check: needs .* -->$/ { print NR, "needs", $4; next }
        /^<!-- check: file .* -->$/ { file = $4; next }
        /^<!-- check: paths .* -->$/ { print NR, "record", $4; table = 1; next }
        table == 1 && /^\|[-|]*$/ { table = 2; next }
        table == 2 && /^\|/ { print NR, "row", $0; next }
        table == 2 { table = 0 }
        /^<!-- check: run$/ { kind = "shell"; hidden = 1; next }
        hidden && /^-->$/ { print NR, "end", ""; hidden = 0; kind = ""; next }
        /^```/ && kind == "" {
            kind = "other"
            if (file != "") { kind = "content"; print NR, "file", file }
            else if ($0 == "```sh" && !skip) kind = "shell"
            else if ($0 == "```json" && after_shell) { kind = "answer"; text = "" }
            file = ""; skip = 0; after_shell = 0
            next
        }
        /^```/ {
            if (kind == "answer") print NR, kind, text
            if (kind == "shell") { print NR, "end", ""; after_shell = 1 }
            kind = ""
            next
        }
        kind == "answer" { text = text $0; next }
        kind != "" && kind != "other" { print NR, kind, $0 }
        kind == "" && /[^ ]/ { after_shell = 0 }' "$guide" | here
}

# comparable: what is compared of a text.
comparable() {
    tr -d ' \t\r\n' | sed -E 's/(_ms":)[0-9]+/\10/g'
}

# holds WANTED: what a comment says of the last command's output and statuses.
holds() {
    local wanted=${1//\"ID\"/\"$id\"} output
    if [[ $wanted =~ ^([1-5][0-9][0-9])([ ,:]|$)(.*) ]]; then
        [ "$(tail -1 "$work/statuses")" = "${BASH_REMATCH[1]}" ] || return
        [[ ${BASH_REMATCH[2]} =~ [\ :] ]] || return 0
        wanted=${BASH_REMATCH[3]}
        [[ $wanted == [\[\{\"]* ]] || wanted="…${wanted//: /…}…"
    fi
    output=$(comparable <"$work/out")
    if [ "$wanted" = nothing ]; then
        [ -z "$output" ]
        return
    fi
    wanted=$(comparable <<<"$wanted" | sed 's/[][\\*?]/\\&/g; s/…/*/g')
    # shellcheck disable=SC2053 # it is a pattern
    [[ $output == $wanted ]]
}

# run: does the command, of line $line, once.
run() {
    : >"$work/notes"
    eval "$command" >"$work/out" 2>>"$work/notes"
    result=$?
    grep -oE '<[0-9]{3}>' "$work/notes" | tr -d '<>' >"$work/statuses"
    if [[ $command =~ millrace\ (serve|dev) ]]; then
        disown -a # so that bash does not tell how it ended
        [[ $command =~ --http\ 127.0.0.1:([0-9]+) ]]
        wait_for_server "${BASH_REMATCH[1]:-$first_port}"
    fi
}

wait_for_server() {
    local tenths
    for ((tenths = 0; tenths < PATIENCE_TENTHS; tenths++)); do
        command curl -sf -o /dev/null "http://127.0.0.1:$1/healthz" && return
        sleep 0.1
    done
    report "$name line $line: the server starts" 1 "$(tail -c 600 "$place/server.log")"
}

only_reads() {
    [[ $command == curl* && ($command == *--get* || ! $command =~ \ -(d|X|T|N|-data)) ]]
}

all_hold() {
    local wanted
    for wanted in "${said[@]}"; do
        holds "$wanted" || return
    done
}

# judge: runs the command and checks whether it answers what was said.
judge() {
    [ -n "$command" ] || return
    local wanted tenths result has_status= got
    command=${command//\/ID/\/$id}
    run
    for ((tenths = 0; tenths < PATIENCE_TENTHS; tenths++)); do
        only_reads && ! all_hold || break
        sleep 0.1
        run
    done
    got="got: $(head -c 1000 "$work/out") $(head -c 600 "$work/notes")"
    for wanted in "${said[@]}"; do
        [[ $wanted =~ ^[1-5][0-9][0-9]([ ,:]|$) ]] && has_status=yes
        holds "$wanted"
        report "$name line $line: $wanted" $? "$got"
    done
    if [ -z "$has_status" ]; then
        [ "$result" = 0 ] && ! grep -qv '^2' "$work/statuses"
        report "$name line $line: ${command:0:100}" $? "$got"
    fi
    [[ $(<"$work/out") =~ ^(\{\"[a-z_]+\":\[)?\{\"id\":\"([^\"]+)\" ]] && id=${BASH_REMATCH[2]}
    command=
    said=()
}

# Notes the status beside the output. A stream (-N) has no end: it is cut off, which is no failure.
#
# curl writes a status in several pieces. Each line is therefore appended by one write, so that curls that a snippet runs
# side by side do not write into each other's lines.
curl() {
    local result=0 seconds=60 notes
    [[ " $* " == *" -N "* ]] && seconds=2
    { notes=$(command curl -sS -m "$seconds" -w '%{stderr}<%{http_code}>' "$@" 2>&1 >&3) || result=$?; } 3>&1
    printf '%s\n' "$notes" >>"$work/notes"
    [ "$seconds $result" = "2 28" ] || return "$result"
}

# listen COMMENT: notes what a comment says of the command before it.
listen() {
    [[ $1 =~ ^([\{\[\"…]|etag:|OK$|null$|true$|false$|nothing$|[0-9]) ]] && said+=("$1")
}

# shell_line CONTENT: one line of a snippet.
shell_line() {
    if [ -z "$text" ] && [[ $1 == '# '* ]]; then
        listen "${1#\# }"
        return
    fi
    if [ -z "$text" ]; then
        [ -n "$1" ] || return
        judge
        line=$number
    fi
    text+=$1$'\n'
    # A command goes on until bash can read it.
    [[ $1 != *\\ ]] || return
    [ -z "$(bash -n <<<"$text" 2>&1)" ] || return
    command=${text%$'\n'}
    text=
    [[ $1 =~ [[:space:]]#\ (.*)$ ]] && listen "${BASH_REMATCH[1]}"
    [[ $command =~ ^millrace\ (serve|dev) && $command != *'&'* ]] && command+=' &'
}

# spans: the code of one cell of a table, a line each.
spans() {
    grep -oE '`[^`]+`' <<<"$1" | tr -d '`'
}

# paths_row ROW: each path of a table's row selects what stands beside it.
paths_row() {
    local cells paths results at
    # In a table, a bar that is meant is \\|.
    IFS='|' read -r _ cells results _ <<<"${1//\\|/$'\x1e'}"
    mapfile -t paths < <(spans "$cells" | tr '\036' '|')
    mapfile -t results < <(spans "$results" | tr '\036' '|')
    line=$number
    [ "${#paths[@]}" != 0 ] && [ "${#paths[@]}" = "${#results[@]}" ]
    report "$name line $line: as many results as paths" $? "$1"
    for at in "${!paths[@]}"; do
        printf -v command 'curl --get %q --data-urlencode %q' "http://127.0.0.1:$first_port$record" "path=${paths[at]}"
        said=("${results[at]}")
        judge
    done
}

# needs PROGRAM: whether it is there; notes where it is not. Clients of S3 go before what the user has, in this guide.
needs() {
    clients=${clients:-$("$root"/scripts/s3-environment.sh)/bin:${CARGO_TARGET_DIR:-$root/target}/tools/s3-go}
    PATH=$place/bin:$clients:$path
    command -v "$1" >/dev/null && return
    echo "skipped: $name line $number: $1 is not installed" | tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    return 1
}

check() {
    local number kind content file record lacking=
    prepare
    cd "$place" || exit 1
    PATH=$place/bin:$PATH
    command= line= text= id=
    said=()
    while IFS=$'\x1f' read -r number kind content; do
        case $kind in
        needs)
            judge
            needs "$content" || lacking=yes
            ;;
        shell) [ -n "$lacking" ] || shell_line "$content" ;;
        answer) said+=("$content") ;;
        file) file=$content && mkdir -p "$(dirname "$file")" && : >"$file" ;;
        record)
            judge
            record=$content
            ;;
        row) paths_row "$content" ;;
        content) printf '%s\n' "$content" >>"$file" ;;
        end)
            [ -z "$text" ]
            report "$name line $number: the snippet is whole" $? "$text"
            text= lacking=
            ;;
        esac
    done < <(pieces)
    judge
    PATH=$path HOME=$home
    cd "$root" || exit 1
    stop_servers
}

server=$(realpath "$(binary)") || exit 1
home=$HOME path=$PATH clients=
export -f curl
export work
[ $# != 0 ] || set -- "$root"/README.md "$root"/docs/guide/{tour,functions,http,transactions,workflows,records,record-paths,objects,backup}.md
for guide in "$@"; do
    guide=$(realpath "$guide")
    name=$(basename "$guide")
    check
done
finish
