# Shared by scripts that start servers in a folder `$data` and end them later; sourced, not run.

# end FILE [SIGNAL]: asks the process whose id FILE of `$data` holds to end, by SIGTERM or SIGNAL,
# and waits; kills it after 30 s.
end() {
    local process tenths
    [ -e "$data/$1" ] || return 0
    process=$(cat "$data/$1")
    rm -f "$data/$1"
    kill -s "${2:-TERM}" "$process" 2>/dev/null || return 0
    for ((tenths = 0; tenths < 300; tenths++)); do
        # A zombie has ended; whoever started it reaps it.
        case $(ps -o state= -p "$process") in '' | Z*) return 0 ;; esac
        sleep 0.1
    done
    kill -s KILL "$process" 2>/dev/null || true
}

# end_postgres: ends a PostgreSQL whose id is in postgres.pid, and its folder of sockets.
end_postgres() {
    # SIGINT: the fast shutdown, which does not wait for clients.
    end postgres.pid INT
    if [ -e "$data/sockets" ]; then
        rm -rf "$(cat "$data/sockets")"
        rm -f "$data/sockets"
    fi
}
