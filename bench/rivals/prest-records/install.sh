#!/usr/bin/env bash
# install.sh: builds pREST, from the Go module proxy that the user's settings name, with the versions in go.mod
# and go.sum; PostgreSQL comes from Debian's packages. Needs Go 1.21 or later, which Debian 12 has not.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh

command -v go >/dev/null || { echo "pREST is built with Go, which is not installed" >&2; exit 1; }
install_postgres
go build -mod=readonly -trimpath -o prestd github.com/prest/prest/cmd/prestd
