#!/usr/bin/env bash
# restate-handlers.sh: the handlers on Restate, over HTTP/2 without TLS, where the Restate server looks for them.
exec "$BIN/hypercorn" restate_app:app --bind "127.0.0.1:$SERVICE_PORT" --workers "$PROCESSES" --worker-class uvloop --keep-alive 120
