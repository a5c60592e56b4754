"""Between exceptions and errors on the wire."""

from __future__ import annotations

import asyncio
import os
import traceback
from types import TracebackType

from .._protocol.payloads import Failure, Outcome, Value
from .._types import dumps, loads
from ..errors import Abort, CallError, InvalidInput, TerminalError, error_of
from .threads import NoThread

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# A message longer than this would be cut by whoever shows it.
_MESSAGE_CHARACTERS = 10_000


def exception_of(failure: Failure) -> Exception:
    """What a handler catches for an error of the server."""
    try:
        detail = loads(failure.detail) if failure.detail else None
    except ValueError:
        detail = None
    return error_of(failure.code, failure.message, detail)


def value_of(outcome: Outcome) -> Value:
    """A good outcome; raises the error of another."""
    if isinstance(outcome, Value):
        return outcome
    raise exception_of(outcome)


def failure_of(error: BaseException) -> tuple[Failure, bool, str]:
    """What goes to the server for an exception: the error, whether it is terminal, the user's traceback."""
    if isinstance(error, Abort):
        try:
            detail = b"" if error.payload is None else dumps(error.payload)
        except (TypeError, ValueError) as problem:
            return failure_of(TypeError(f"the payload of an Abort is not JSON: {problem}"))
        return Failure("aborted", _clean(error.message), detail), True, ""
    if isinstance(error, InvalidInput):
        return Failure("invalid-input", _clean(str(error))), True, ""
    if isinstance(error, CallError):
        # An error of ctx that nobody caught keeps its own code.
        detail = b"" if error.detail is None else dumps(error.detail)
        return Failure(error.code, _clean(error.message), detail), False, user_trace(error)
    if isinstance(error, asyncio.CancelledError):
        return Failure("function-failed", "the handler's task was cancelled"), False, ""
    if isinstance(error, NoThread):
        return Failure("worker-unavailable", f"the handler did not run, try again: {error}"), False, ""
    place = _place(error.__traceback__)
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    told = f"{message} ({place})" if place else message
    return Failure("function-failed", _clean(told)), isinstance(error, TerminalError), user_trace(error)


def user_trace(error: BaseException) -> str:
    """A traceback without the frames of this package and of asyncio: they are not the user's to mend."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        kept = [frame for frame in link.stack if _is_users(frame.filename)]
        if kept:
            link.stack = traceback.StackSummary.from_list(kept)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return _clean("".join(shown.format()))


def _place(trace: TracebackType | None) -> str:
    """The user's innermost file and line."""
    place = ""
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if _is_users(filename):
            place = f"{os.path.basename(filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _is_users(filename: str) -> bool:
    if filename.startswith(_PACKAGE):
        return False
    return f"{os.sep}asyncio{os.sep}" not in filename and f"{os.sep}concurrent{os.sep}" not in filename


def _clean(text: str) -> str:
    """Text that UTF-8 can carry."""
    return text[:_MESSAGE_CHARACTERS].encode(errors="replace").decode()
