#!/usr/bin/env bash
# install.sh: installs PostgreSQL from Debian's packages, and builds the HTTP front, whose sources are
# here and whose libraries come from crates.io. Needs cargo.
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" = 0 ]; then sudo=(); else sudo=(sudo); fi

missing=()
command -v taskset >/dev/null || missing+=(util-linux)
command -v curl >/dev/null || missing+=(curl)
command -v pgrep >/dev/null || missing+=(procps)
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
fi
cargo build --quiet --release --locked --target-dir target
