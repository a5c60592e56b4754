#!/usr/bin/env bash
# check.sh [BASE]: checks the contract of the hotel, as for every rival, save the isolation that a
# saga has not.
SAGA=1 exec "$(dirname "$0")/../express-hotel/check.sh" "$@"
