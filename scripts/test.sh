#!/usr/bin/env bash
# test.sh: every check and test, cheapest first; stops at the first that fails.
#
# The server is built first and by itself: the binary that the black-box tests run is then the
# one that users build, not one with the features of the whole workspace.
set -euo pipefail

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# install-missing.sh has been here: a test whose program is missing fails. What only the machine's owner can give, such
# as the right to mount, may be missing; what is left out for that is told at the end, where it is seen.
export MILLRACE_TEST_REQUIRE=1
MILLRACE_TEST_SKIPPED=$(mktemp)
export MILLRACE_TEST_SKIPPED
beside_log=$(mktemp)
beside=
# Under errexit a trap whose command fails gives the whole script its status: the checks beside the compiler have mostly ended.
trap 'kill $beside 2>/dev/null || true; rm -f "$MILLRACE_TEST_SKIPPED" "$beside_log"' EXIT

. scripts/steps.sh

examples() {
    local log folder path failures=0
    log=$(mktemp)
    for folder in examples/*/; do
        for path in README.md run.sh test.sh; do
            [ -s "$folder$path" ] || {
                failures=$((failures + 1))
                echo "$folder$path is missing" >&2
            }
        done
    done
    # Each starts its example with its run.sh, as a user would.
    for path in examples/*/test.sh; do
        if BINARY="$(realpath "$target")/release/millrace" "$path" >"$log" 2>&1; then
            echo "$path: $(tail -1 "$log")"
        else
            failures=$((failures + 1))
            echo "$path failed:" >&2
            cat "$log" >&2
        fi
    done
    rm -f "$log"
    [ "$failures" = 0 ]
}

guides() {
    BINARY="$(realpath "$target")/release/millrace" scripts/check-guide.sh
}

step tidy tidy
step format cargo fmt --all --check
step "format of fuzz" cargo fmt --manifest-path fuzz/Cargo.toml --check
step "features of dependencies" scripts/check-features.sh
step build cargo build --quiet --release --locked -p millrace-server
step clippy clippy
step "types of the examples" scripts/check-types.sh
# These wait more than they compute, so they run beside the compiler, and are told when they have ended. The part of the S3 suite
# takes one minute, where the suite lies beside the repository. The check of the Python SDK builds wheels, and waits for the
# compiler's lock, so it comes last. Its environment is made first: examples run in it.
beside() {
    step "environment of the Python SDK" scripts/python.sh environment
    step "examples" examples
    step "Schema Registry client" scripts/check-clients.sh
    step "login of outside users" scripts/check-outside.sh
    step "part of the S3 clients" scripts/check-s3-clients.sh --quick
    step "part of the S3 suite" tests/conformance/run.py --quick
    step "guides" guides
    step "Python SDK" env MILLRACE_BINARY="$(realpath "$target")/release/millrace" scripts/python.sh check
}
(beside) >"$beside_log" 2>&1 &
beside=$!
# Without the examples of libraries, which clippy has compiled, and without snippets of documentation, of which there are none.
workspace=(--quiet --release --locked --workspace)
step "compilation of the tests" cargo test "${workspace[@]}" --tests --no-run
status=0
wait $beside || status=$?
cat "$beside_log"
[ $status = 0 ]
step "cargo test" cargo test "${workspace[@]}" --exclude millrace-tests --tests
step "harness of the black box" cargo test "${workspace[@]}" --lib machine::
# Most of a test is waiting, so two a CPU run at a time. One that measures has the machine for itself (tests/src/machine.rs).
step "black box" cargo test "${workspace[@]}" --test black_box --test descriptors -- --test-threads=$((2 * $(nproc)))
if [ -s "$MILLRACE_TEST_SKIPPED" ]; then
    echo "== NOT CHECKED on this machine:"
    sed 's/^skipped: /   /' "$MILLRACE_TEST_SKIPPED"
fi
