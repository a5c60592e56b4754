#!/usr/bin/env bash
# stop.sh: ends what start.sh started with the same DATA; the data stays there.
set -euo pipefail
data=${DATA:?the folder that start.sh had}

# end FILE SIGNAL: asks the process whose id FILE holds to end, and waits; kills it after 30 s.
end() {
    local process
    [ -e "$data/$1" ] || return 0
    process=$(cat "$data/$1")
    rm -f "$data/$1"
    kill -s "$2" "$process" 2>/dev/null || return 0
    for ((tenths = 0; tenths < 300; tenths++)); do
        # A zombie has ended; whoever started it reaps it.
        case $(ps -o state= -p "$process") in '' | Z*) return 0 ;; esac
        sleep 0.1
    done
    kill -s KILL "$process" 2>/dev/null || true
}

end gateway.pid TERM
# SIGINT: PostgreSQL's fast shutdown, which does not wait for clients.
end postgres.pid INT
if [ -e "$data/sockets" ]; then
    rm -rf "$(cat "$data/sockets")"
    rm -f "$data/sockets"
fi
