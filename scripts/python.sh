#!/usr/bin/env bash
# python.sh environment | check | wheels: the Python SDK. Its environment is target/python; `check` is format, lint, types and
# tests, with the real server and its wheel where MILLRACE_BINARY names it. Without Python `check` says so and passes, unless CI=true.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
environment=$target/python
requirements=sdk/python/requirements.txt
# Strips types where Node.js is older than 22.13.
amaro=1.2.1

# Another list, or another Python, is another environment. The examples find it by its fixed name.
environment() {
    local version
    version=$( { python3 --version; cat "$requirements" sdk/python/pyproject.toml; } | sha256sum | cut -c1-16)
    node_packages
    [ -e "$environment/whole-$version" ] && return
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps --only-binary :all: \
        -r "$requirements" || {
        echo "could not install $requirements: pip needs its package index" >&2
        return 1
    }
    # Not a copy: what is checked is what stands in sdk/python.
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-input --no-deps --no-build-isolation --editable sdk/python 
    touch "$environment/whole-$version"
}

# For the tests of sdk/node. Without npm they find Node.js that needs none, or are skipped.
node_packages() {
    [ -e "$target/node/node_modules/amaro" ] || ! command -v npm >/dev/null && return
    npm install --silent --no-audit --no-fund --no-save --prefix "$target/node" "amaro@$amaro" ||
        echo "could not install amaro $amaro: npm needs its registry" >&2
}

check() {
    local bin=$environment/bin
    (
        cd sdk/python
        "$bin/ruff" format --quiet --check src tests bench ../../examples/python
        "$bin/ruff" check --quiet src tests bench ../../examples/python
        "$bin/mypy" --no-error-summary
        "$bin/pytest" -q
    )
    # Each by itself, as a user's own file: they share no package.
    (cd examples/python && "$bin/mypy" --no-error-summary --strict --config-file= app.py)
}

# The SDK's wheel, and the server's from the program that is built, which is not compiled again. Both are tried in an
# environment of their own, as a new user has it: the guide's first file under `millrace dev`.
wheels() {
    local clean=$target/wheels-tried wheel=("$environment/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation)
    rm -rf "$target/wheels" "$clean"
    "${wheel[@]}" --wheel-dir "$target/wheels" ./sdk/python
    PATH=$environment/bin:$PATH CARGO_TARGET_DIR=$target "${wheel[@]}" --wheel-dir "$target/wheels" ./sdk/python-server
    python3 -m venv --without-pip "$clean"
    "$environment/bin/pip" --python "$clean/bin/python" install --quiet --disable-pip-version-check --no-compile --no-index \
        --find-links "$target/wheels" millrace-sdk millrace-server
    try_wheels "$clean"
    rm -rf "$clean"
    ls "$target/wheels"
}

try_wheels() {
    local port url dev answers
    awk '/^```python$/ { inside = 1; next } inside && /^```$/ { exit } inside' docs/guide/python.md >"$1/bank.py"
    port=$("$1/bin/python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
    url=http://127.0.0.1:$port/call/account
    (cd "$1" && unset VIRTUAL_ENV && exec bin/millrace dev bank.py --http "127.0.0.1:$port") >"$1/log" 2>&1 &
    dev=$!
    for _ in $(seq 200); do
        grep -q 'deployed app' "$1/log" && break
        sleep 0.05
    done
    answers=$(curl -s -d 100 "$url/ann/deposit"; curl -s -d '{"to":"bob","amount":30}' "$url/ann/transfer"; curl -s -d null "$url/bob/show") || true
    kill "$dev"
    wait "$dev"
    [ "$answers" = 100null30 ] || { echo "millrace dev bank.py answered $answers" >&2; cat "$1/log" >&2; return 1; }
}

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "skipped: the Python SDK: there is no python3 of 3.10 or later with venv" | tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    [ "${CI:-}" != true ]
    exit
fi
case ${1:-check} in
    environment) environment ;;
    check)
        environment
        check
        [ -z "${MILLRACE_BINARY:-}" ] || wheels
        ;;
    wheels)
        environment
        wheels
        ;;
    *) echo "python.sh environment | check | wheels" >&2; exit 2 ;;
esac
