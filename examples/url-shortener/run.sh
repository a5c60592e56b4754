#!/usr/bin/env bash
# Serves this example alone: PORT=8080 DATA=data/url-shortener examples/url-shortener/run.sh
. "$(dirname "$0")/../lib.sh"
run_example url-shortener
