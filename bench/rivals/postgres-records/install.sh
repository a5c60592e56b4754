#!/usr/bin/env bash
# install.sh: installs PostgreSQL from Debian's packages, and builds the HTTP front, whose sources are
# here and whose libraries come from crates.io. Needs cargo.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh

install_postgres
cargo build --quiet --release --locked --target-dir target
