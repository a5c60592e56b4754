#!/usr/bin/env bash
# install.sh: builds etcd and etcd-load, from the Go module proxy that the user's settings name, with the versions in
# go.mod and go.sum. Neither needs anything of the machine that it runs on later. Needs Go.
set -euo pipefail
cd "$(dirname "$0")"
command -v go >/dev/null || { echo "etcd is built with Go, which is not installed" >&2; exit 1; }
export CGO_ENABLED=0
[ -x ./etcd ] || go build -mod=readonly -trimpath -ldflags "-s -w" -o etcd go.etcd.io/etcd/server/v3
[ ./etcd-load -nt load.go ] || go build -mod=readonly -trimpath -ldflags "-s -w" -o etcd-load .
