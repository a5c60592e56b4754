"""Children that end when the process that has started them is killed, which can tell them nothing then."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1


def end_without(parent: int) -> None:
    """Ends this process soon after its parent has, whatever its other threads do."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="millrace-parent", daemon=True).start()


def signal_at_parents_end() -> Callable[[], None] | None:
    """For a child that is another program: what ``subprocess`` runs before it. Only Linux has this.

    The child gets SIGTERM when the *thread* that starts it ends, so that is to be the main thread.
    """
    if sys.platform != "linux":
        return None
    try:
        # Looked up here: between fork and exec as little as can be is done.
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
