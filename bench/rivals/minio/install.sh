#!/usr/bin/env bash
# install.sh: builds MinIO and its client from the Go module proxy that the user's settings name. Needs Go.
set -euo pipefail
cd "$(dirname "$0")"
command -v go >/dev/null || { echo "MinIO is built with Go, which is not installed" >&2; exit 1; }
[ -x ./minio ] || GOBIN=$PWD go install github.com/minio/minio@latest
[ -x ./mc ] || GOBIN=$PWD go install github.com/minio/mc@latest
go version -m ./minio | awk '$1 == "mod" { print "MinIO " $3 }' >version
