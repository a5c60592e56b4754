#!/usr/bin/env bash
# install.sh: builds versitygw from the Go module proxy that the user's settings name. Needs Go.
set -euo pipefail
cd "$(dirname "$0")"
command -v go >/dev/null || { echo "versitygw is built with Go, which is not installed" >&2; exit 1; }
[ -x ./versitygw ] || GOBIN=$PWD go install github.com/versity/versitygw/cmd/versitygw@latest
go version -m ./versitygw | awk '$1 == "mod" { print "versitygw " $3 }' >version
