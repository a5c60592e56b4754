"""Errors: what a handler raises, and what it catches."""

from __future__ import annotations

from typing import Any


class MillraceError(Exception):
    """The base of all errors of this package."""


class Abort(MillraceError):
    """The handler refuses the call: everything the call did is undone.

    The caller gets the message and the payload; over HTTP as status 409 and code ``aborted``. It is an
    answer and not a failure: nothing tries the call again.
    """

    def __init__(self, message: str = "", payload: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.payload = payload


class TerminalError(MillraceError):
    """A failure that another try would not mend: workflows and messages are not tried again.

    Raise it, or a subclass, where the handler is broken or its data is. To refuse a call, raise :class:`Abort`.
    """


class CallError(MillraceError):
    """An operation or a call failed. ``code`` says how; each code has a page in the documentation."""

    def __init__(self, code: str, message: str, detail: Any = None, *, status: int | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.detail = detail
        # The HTTP status, where a client raised the error.
        self.status = status


class WaitTimeout(CallError, TimeoutError):
    """No signal came before the timeout of ``ctx.wait``."""


class NotDeterministic(CallError):
    """A workflow did something else than its journal has."""


class InvalidInput(MillraceError, ValueError):
    """An input, or the body of a request, is not what was declared. The message names the place."""


class TypeMismatch(MillraceError, TypeError):
    """A handler stores, sends or returns a value that is not of the declared type."""


class UsageError(MillraceError, RuntimeError):
    """The package is used in a way that cannot work: a field written in a query, a call outside a handler."""


_CLASSES: dict[str, type[CallError]] = {
    "wait-limit": WaitTimeout,
    "diverged": NotDeterministic,
    "not-deterministic": NotDeterministic,
}


def error_of(code: str, message: str, detail: Any = None, *, status: int | None = None) -> MillraceError:
    """The exception for an error of the server."""
    if code == "aborted":
        return Abort(message, detail)
    return _CLASSES.get(code, CallError)(code, message, detail, status=status)
