#!/usr/bin/env bash
# Serves these examples: PORT=8080 DATA=data/python examples/python/run.sh
#
#   PYTHON       a Python that has the SDK and uvicorn (target/python/bin/python, made by `make python-environment`)
#   WORKER_PORT  where the worker listens (PORT + 1)
. "$(dirname "$0")/../lib.sh"
# lib.sh's own clean-up is for tests.
trap - EXIT INT TERM
rm -rf "$work"

here=$(cd "$(dirname "$0")" && pwd)
server=$(binary) || exit 1
python=${PYTHON:-${CARGO_TARGET_DIR:-$root/target}/python/bin/python}
port=${PORT:-8080}
worker_port=${WORKER_PORT:-$((port + 1))}
cd "$root" || exit 1
mkdir -p "${DATA:-data/python}"

# Two processes and one to wait for: the server is the one that a signal to this script stops.
(cd "$here" && exec "$python" -m uvicorn app:app --port "$worker_port" --log-level warning) &
worker=$!
"$server" serve --data "${DATA:-data/python}" --http "127.0.0.1:$port" &
node=$!
stop() {
    kill -TERM "$node" 2>/dev/null
    wait "$node"
    status=$?
    kill -TERM "$worker" 2>/dev/null
    wait "$worker" 2>/dev/null
    exit "$status"
}
trap stop TERM INT

# The node asks the worker what it has, so both have to be there.
for _ in {1..200}; do
    if "$server" deploy python --worker "http://127.0.0.1:$worker_port" --url "http://127.0.0.1:$port" >/dev/null 2>&1; then
        echo "deployed"
        break
    fi
    kill -0 "$node" 2>/dev/null && kill -0 "$worker" 2>/dev/null || { echo "the server or the worker has ended" >&2; stop; }
    sleep 0.1
done
wait "$node"
stop
