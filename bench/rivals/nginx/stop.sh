#!/usr/bin/env bash
# stop.sh: ends what start.sh started with the same DATA; the data stays there.
set -euo pipefail
data=${DATA:?the folder that start.sh had}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../../scripts/processes.sh"

end front.pid
DATA=$data/gateway "$here/../versitygw/stop.sh"
