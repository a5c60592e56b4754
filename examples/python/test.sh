#!/usr/bin/env bash
# test.sh [BASE]: runs the tests of the TypeScript examples on their Python twins.
#
# One node and one worker serve all of them. Where the Python environment is missing, or the server cannot
# deploy a worker, nothing is tested, and the last line says so.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"

examples="single chain tree calculator list compose url-shortener transfer hotel media social"
export PYTHON=${PYTHON:-${CARGO_TARGET_DIR:-$root/target}/python/bin/python}

# One test finds the end of a deployment only by asking: a call of a service that is there.
wait_until_deployed() {
    local tenths
    for ((tenths = 0; tenths < 300; tenths++)); do
        [ "$(curl -s -o /dev/null -w '%{http_code}' -d null "$BASE/call/single/probe/count")" = 200 ] && return 0
        kill -0 "$node_pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

if [ -z "${1:-}" ]; then
    missing=
    "$PYTHON" -c 'import millrace, uvicorn' 2>/dev/null || missing="$PYTHON has no millrace and uvicorn"
    "$(binary)" deploy --help 2>/dev/null | grep -q -- --worker || missing="the server cannot deploy workers"
    if [ -n "$missing" ]; then
        [ -z "${MILLRACE_TEST_SKIPPED:-}" ] || echo "skipped: examples/python: $missing" >>"$MILLRACE_TEST_SKIPPED"
        echo "not tested: $missing"
        exit 0
    fi
fi
begin python "${1:-}"
[ -z "$node_pid" ] || wait_until_deployed || { cat "$work/server.log"; exit 1; }
for example in $examples; do
    if output=$("$here/../$example/test.sh" "$BASE" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$example" "$output"
    fi
done
finish
