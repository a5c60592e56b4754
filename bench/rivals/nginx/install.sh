#!/usr/bin/env bash
# install.sh: nginx from the distribution's package, and versitygw, which takes the writes. Needs Go.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -x /usr/sbin/nginx ]; then
    sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq
    # Its service must not start: the bench starts its own.
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends nginx-light
fi
"$here/../versitygw/install.sh"
