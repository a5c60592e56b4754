#!/usr/bin/env bash
# check-outside.sh: the login of users who live in an outside database, with a real one: PostgreSQL behind its HTTP
# gateway, as examples/login/outside has them, on a port and in a folder of their own.
#
# Where their packages are not installed it says so and passes. It installs none: with Debian's PostgreSQL comes
# a service that runs from then on, which is nothing for a test to decide.
set -euo pipefail

cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
outside=examples/login/outside
for file in '/usr/lib/postgresql/*/bin/postgres' /usr/lib/apache2/modules/mod_lua.so '/usr/lib/*/lua/5.3/dbd/postgresql.so'; do
    compgen -G "$file" >/dev/null || {
        echo "skipped: login of outside users: there is no $file, which $outside/install.sh installs" |
            tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}"
        exit 0
    }
done

# Below /tmp, as the user postgres must reach it.
work=$(mktemp -d /tmp/millrace-outside-XXXXXX)
server=
finish() {
    if [ -n "$server" ]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    DATA=$work/outside $outside/stop.sh || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
chmod o+x "$work"
mkdir "$work/outside" "$work/login"

# free_port: prints a port at which nobody listens.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}
gateway=$(free_port)
DATA=$work/outside PORT=$gateway USERS=10 $outside/start.sh >"$work/started" 2>&1 || {
    cat "$work/started" >&2
    exit 1
}
PORT=$gateway $outside/check.sh

# The example, with this gateway in place of the documented one.
cp examples/login/*.ts examples/login/millrace.toml "$work/login/"
sed -i "s/127\.0\.0\.1:8090/127.0.0.1:$gateway/" "$work"/login/*
base=http://127.0.0.1:$(free_port)
"$target/release/millrace" serve --app "$work/login" --data "$work/data" --http "${base#http://}" >"$work/server.log" 2>&1 &
server=$!
for ((tenths = 0; tenths < 300; tenths++)); do
    curl -sf -o /dev/null "$base/healthz" && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
GATEWAY=http://127.0.0.1:$gateway examples/login/test.sh "$base" || {
    cat "$work/server.log" >&2
    exit 1
}
