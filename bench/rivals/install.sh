#!/bin/sh
# install.sh: installs the rivals: wrk, Valkey (or Redis, if the distribution has no Valkey), Node.js, Express and its
# Redis client. For the hotel it installs PostgreSQL with its client, the Restate server with its SDK, and the Node.js
# that both use. `make bench` and `make bench-transactions` run it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi

missing=
command -v wrk >/dev/null || missing="$missing wrk"
command -v taskset >/dev/null || missing="$missing util-linux"
command -v curl >/dev/null || missing="$missing curl"
command -v pgrep >/dev/null || missing="$missing procps"
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing="$missing postgresql"
command -v node >/dev/null || missing="$missing nodejs"
if ! command -v valkey-server >/dev/null && ! command -v redis-server >/dev/null; then
    $sudo apt-get update -qq
    if apt-cache show valkey-server >/dev/null 2>&1; then missing="$missing valkey-server"; else
        echo "this distribution has no Valkey; Redis stands in for it" >&2
        missing="$missing redis-server"
    fi
fi
command -v npm >/dev/null || missing="$missing npm"
if [ -n "$missing" ]; then
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq $missing
fi
cd "$here/express"
npm install --no-package-lock --no-audit --no-fund --omit=dev
# The package of Node.js contains binaries. No package needs an install script, and one script would report the
# installation to its maker.
for rival in express-hotel restate-hotel; do
    cd "$here/$rival"
    npm install --no-package-lock --no-audit --no-fund --omit=dev --ignore-scripts
done
