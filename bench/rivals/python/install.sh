#!/usr/bin/env bash
# install.sh: the Python environment of all sides here, PostgreSQL, Redis (or Valkey), and the Restate server of restate-hotel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
install_postgres
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)
if ! command -v valkey-server >/dev/null && ! command -v redis-server >/dev/null; then
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server
fi
wanted=$(sha256sum "$here/requirements.txt" | cut -c1-16)
if [ ! -e "$here/environment/whole-$wanted" ]; then
    rm -rf "$here/environment"
    python3 -m venv "$here/environment"
    "$here/environment/bin/pip" install --quiet --disable-pip-version-check --no-input -r "$here/requirements.txt"
    touch "$here/environment/whole-$wanted"
fi
if [ ! -d "$here/../restate-hotel/node_modules/@restatedev" ]; then
    cd "$here/../restate-hotel"
    npm install --no-package-lock --no-audit --no-fund --omit=dev --ignore-scripts
fi
