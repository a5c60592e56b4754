"""Each Python process of a side ends with the process that started it, also if that one was killed: servers with several
processes leave theirs behind then. Python imports this by itself, because start.sh puts its folder on PYTHONPATH."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
