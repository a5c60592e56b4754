#!/usr/bin/env bash
# install.sh: builds pREST, from the Go module proxy that the user's settings name, with the versions in go.mod
# and go.sum; PostgreSQL comes from Debian's packages. Needs Go 1.21 or later, which Debian 12 has not.
set -euo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" = 0 ]; then sudo=(); else sudo=(sudo); fi

command -v go >/dev/null || { echo "pREST is built with Go, which is not installed" >&2; exit 1; }
missing=()
command -v taskset >/dev/null || missing+=(util-linux)
command -v curl >/dev/null || missing+=(curl)
command -v pgrep >/dev/null || missing+=(procps)
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing+=(postgresql)
if [ ${#missing[@]} -gt 0 ]; then
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}"
fi
go build -mod=readonly -trimpath -o prestd github.com/prest/prest/cmd/prestd
