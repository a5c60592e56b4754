#!/usr/bin/env bash
# check.sh [BASE]: checks the contract of the hotel as for every rival, except for isolation, which a saga lacks.
SAGA=1 exec "$(dirname "$0")/../express-hotel/check.sh" "$@"
