"""Steps of workflows: code that runs in the worker, and whose result the server notes."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .._protocol import payloads
from .._protocol.frames import Type
from .._protocol.payloads import Failure, Outcome, Value
from .._types import Mismatch, dumps, loads, type_of
from ..errors import TerminalError, TypeMismatch
from .failures import exception_of, failure_of

if TYPE_CHECKING:
    from .attempt import Attempt


@dataclass(frozen=True)
class Retry:
    """How often a step that fails is tried, and the pauses between. What is ``None`` is as the app has it."""

    attempts: int | Literal["unlimited"] | None = None
    first_ms: int | None = None
    longest_ms: int | None = None

    def __post_init__(self) -> None:
        if self.attempts not in (None, "unlimited") and not (isinstance(self.attempts, int) and self.attempts >= 1):
            raise ValueError(f'attempts is a number from 1 on, or "unlimited", and not {self.attempts!r}')

    def encode(self) -> bytes:
        return dumps({name: value for name, value in vars(self).items() if value is not None})


async def run_step(
    attempt: Attempt, name: str, code: Callable[..., Any], arguments: tuple[Any, ...], retry: Retry | None
) -> Any:
    """Runs a step's code unless its result is noted; gives the noted result."""
    policy = b"" if retry is None else retry.encode()
    number = attempt.issue(Type.STEP, lambda number: payloads.operation(number, name.encode(), policy))
    outcome = (await attempt.result(number)).outcome
    while isinstance(outcome, Value) and outcome.kind == payloads.RAW and not outcome.data:
        noted = attempt.noted_early(number)
        ended = noted or await _run(attempt, code, arguments)
        attempt.emit(Type.STEP_END, payloads.U32.pack(number) + payloads.pack_outcome(ended))
        outcome = noted or (await attempt.result(number)).outcome
    if isinstance(outcome, Value) and outcome.kind == payloads.RAW:
        outcome = payloads.unpack_outcome(outcome.data)
    if isinstance(outcome, Failure):
        raise exception_of(outcome)
    return _typed(name, code, outcome.data)


async def _run(attempt: Attempt, code: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    attempt.running_steps += 1
    try:
        if inspect.iscoroutinefunction(code):
            value = await code(*arguments)
        else:
            # Plain code may block, and the loop has other calls to serve.
            context = contextvars.copy_context()
            bound = functools.partial(context.run, code, *arguments)
            value = await attempt.loop.run_in_executor(None, bound)
            if inspect.isawaitable(value):
                value = await value
        return Value(payloads.JSON, dumps(_return_type(code).dump(value)))
    except Mismatch as mismatch:
        return failure_of(TypeError(mismatch.told("the step's result")))[0]
    except TerminalError as error:
        # A noted error has no flag that says terminal; the code `aborted` says it.
        return failure_of(error)[0]._replace(code="aborted")
    except (Exception, asyncio.CancelledError) as error:
        if attempt.ended:
            raise
        return failure_of(error)[0]
    finally:
        attempt.running_steps -= 1


def _return_type(code: Callable[..., Any]) -> Any:
    try:
        return type_of(typing.get_type_hints(code).get("return", Any))
    except (TypeError, NameError):  # A callable without annotations: a partial, a built-in.
        return type_of(Any)


def _typed(name: str, code: Callable[..., Any], data: bytes) -> Any:
    try:
        return _return_type(code).load(loads(data), False)
    except Mismatch as mismatch:
        raise TypeMismatch(mismatch.told(f"the result of step {name}")) from None
