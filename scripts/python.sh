#!/usr/bin/env bash
# python.sh environment | check | wheels: the Python SDK. Its environment is target/python; `check` is format, lint, types and
# tests, with the real server where MILLRACE_BINARY names it. Without Python `check` says so and passes, unless CI=true.
set -euo pipefail

cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
environment=$target/python
requirements=sdk/python/requirements.txt

# Another list, or another Python, is another environment. The examples find it by its fixed name.
environment() {
    local version
    version=$( { python3 --version; cat "$requirements" sdk/python/pyproject.toml; } | sha256sum | cut -c1-16)
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

# The SDK's wheel, and the server's from the program that is built. Both are tried in an environment of their own.
wheels() {
    local built=${MILLRACE_BINARY:-$target/release/millrace} clean=$target/wheels-tried wheel=()
    [ -x "$built" ] || { echo "$built is not there: make build" >&2; return 1; }
    wheel=("$environment/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$target/wheels")
    rm -rf "$target/wheels" "$clean"
    "${wheel[@]}" ./sdk/python
    MILLRACE_BINARY=$(realpath "$built") "${wheel[@]}" ./sdk/python-server
    python3 -m venv "$clean"
    "$clean/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$target/wheels" millrace-sdk millrace-server
    "$clean/bin/millrace" --version
    "$clean/bin/python" -c 'import millrace; print("millrace-sdk", millrace.__version__)'
    rm -rf "$clean"
    ls "$target/wheels"
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
        ;;
    wheels)
        environment
        wheels
        ;;
    *) echo "python.sh environment | check | wheels" >&2; exit 2 ;;
esac
