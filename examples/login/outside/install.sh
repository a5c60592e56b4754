#!/bin/sh
# install.sh: installs the outside database and its gateway from Debian's packages. apache2-bin is
# the server alone: no service is set up or started for it.
set -eu
if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
missing=
[ -e /usr/lib/apache2/modules/mod_lua.so ] || missing="$missing apache2-bin"
[ -n "$(ls /usr/lib/*/lua/5.3/dbd/postgresql.so 2>/dev/null)" ] || missing="$missing lua-dbi-postgresql"
[ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing="$missing postgresql"
command -v curl >/dev/null || missing="$missing curl"
if [ -n "$missing" ]; then
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
fi
