#!/usr/bin/env bash
# Serves this example alone: PORT=8080 DATA=data/inventory examples/inventory/run.sh
. "$(dirname "$0")/../lib.sh"
run_example inventory
