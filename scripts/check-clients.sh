#!/usr/bin/env bash
# check-clients.sh: clients that others wrote, against the built server. Their packages go below the target
# directory, once for each list of them. Without Python it says so and passes, unless CI=true; without its packages it fails.
set -euo pipefail

cd "$(dirname "$0")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}")
requirements=tests/clients/requirements.txt

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "skipped: clients of others: there is no python3 of 3.10 or later with venv, which scripts/install-missing.sh test installs" |
        tee -a "${MILLRACE_TEST_SKIPPED:-/dev/null}" >&2
    # Continuous integration leaves no check out.
    [ "${CI:-}" != true ]
    exit
fi

# Another list, or another Python, is another environment.
version=$( { python3 --version; cat "$requirements"; } | sha256sum | cut -c1-16)
environment=$target/tools/clients-$version
if [ ! -e "$environment/whole" ]; then
    rm -rf "$target"/tools/clients-*
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-input --no-compile --no-deps --only-binary :all: \
        -r "$requirements" || {
        echo "could not install $requirements: pip needs its package index" >&2
        exit 1
    }
    touch "$environment/whole"
fi
exec "$environment/bin/python" tests/clients/schema_registry.py "$target/release/millrace"
