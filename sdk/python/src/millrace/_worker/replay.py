"""Finding where a workflow did something else when it ran again.

The server compares checksums and knows *that* it differs. The worker that ran it before knows *where*: it
keeps, for each frame, the checksum up to it and the line of the user's code that asked for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

from .._protocol.frames import Type
from .._protocol.payloads import Kind, Start

log = logging.getLogger("millrace")

_KEPT_TRAILS = 256
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Mark(NamedTuple):
    """One frame that an attempt has sent."""

    checksum: int
    type: Type
    place: str


class Trail:
    """The frames of one attempt, and those of the run before it."""

    def __init__(self, start: Start, before: list[Mark]) -> None:
        self._start = start
        self._before = before
        self.marks: list[Mark] = []

    def add(self, type: Type, checksum: int) -> None:
        mark = Mark(checksum, type, place_of_caller())
        index = len(self.marks)
        self.marks.append(mark)
        if index < len(self._before) and index < self._start.seen:
            before = self._before[index]
            if before.checksum != checksum:
                self._tell(before, mark)
                self._before = []

    def _tell(self, before: Mark, now: Mark) -> None:
        start = self._start
        log.error(
            "workflow %s/%s/%s is not deterministic: when it ran again it came to %s at %s; "
            "the run before had %s at %s. What differs from run to run belongs into ctx.step",
            start.service,
            start.key.decode(errors="replace"),
            start.handler,
            now.type.name,
            now.place,
            before.type.name,
            before.place,
        )


class Trails:
    """Trails of workflows that are no longer in memory, by attempt."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, list[Mark]] = OrderedDict()

    def begin(self, start: Start) -> Trail | None:
        if start.kind is not Kind.WORKFLOW:
            return None
        return Trail(start, self._kept.pop(start.attempt, []))

    def keep(self, start: Start, trail: Trail | None) -> None:
        if trail is None:
            return
        self._kept[start.attempt] = trail.marks
        while len(self._kept) > _KEPT_TRAILS:
            self._kept.popitem(last=False)


def place_of_task(task: object) -> str:
    """File and line at which a handler waits: the user's innermost."""
    place = "an unknown line"
    waiting: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
            place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        waiting = getattr(waiting, "cr_await", None)
    return place


def place_of_caller() -> str:
    """File and line of the user's code that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE) and f"{os.sep}asyncio{os.sep}" not in filename:
            return f"{os.path.basename(filename)}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "an unknown line"
