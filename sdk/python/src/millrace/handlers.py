"""Handlers: the methods of a service that can be called, and the decorators that say of which kind they are."""

from __future__ import annotations

import dis
import inspect
import typing
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._protocol.payloads import Kind
from ._types import Mismatch, Type, dumps, loads, type_of
from ._types.base import MISSING, Scalar
from .errors import InvalidInput, TypeMismatch

if TYPE_CHECKING:
    from .service import Service

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__millrace__"
_EMPTY = inspect.Parameter.empty
# What the compiler makes of await, of async for and of async with, in Python 3.10 to 3.14.
_AWAITING = {"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "SEND", "YIELD_FROM"}


@dataclass(frozen=True)
class Schedule:
    """A time at which a handler is called, again and again."""

    cron: str
    key: str
    input: Any
    name: str | None


@dataclass
class Marks:
    """What decorators say of a function."""

    kind: Kind = Kind.TRANSACTION
    name: str | None = None
    timeout_ms: int | None = None
    route: str | None = None
    schedules: list[Schedule] = field(default_factory=list)
    decorated: bool = False


def marks_of(function: Any) -> Marks:
    """The marks of a function, made at the first decorator."""
    marks: Marks | None = getattr(function, _MARK, None)
    if marks is None:
        marks = Marks()
        setattr(function, _MARK, marks)
    return marks


def _mark(kind: Kind, function: Any, name: str | None, timeout_ms: int | None) -> Any:
    def mark(function: F) -> F:
        marks = marks_of(function)
        if marks.decorated:
            raise TypeError(f"{function.__name__} has two kinds")
        marks.kind, marks.name, marks.timeout_ms, marks.decorated = kind, name, timeout_ms, True
        return function

    return mark if function is None else mark(function)


@overload
def transaction(function: F, /) -> F: ...
@overload
def transaction(*, name: str | None = None, timeout_ms: int | None = None) -> Callable[[F], F]: ...
def transaction(function: Any = None, /, *, name: str | None = None, timeout_ms: int | None = None) -> Any:
    """Marks a handler that reads and writes. A method without a mark is one; use this to give it a name."""
    return _mark(Kind.TRANSACTION, function, name, timeout_ms)


@overload
def query(function: F, /) -> F: ...
@overload
def query(*, name: str | None = None, timeout_ms: int | None = None) -> Callable[[F], F]: ...
def query(function: Any = None, /, *, name: str | None = None, timeout_ms: int | None = None) -> Any:
    """Marks a handler that only reads: it sees one consistent state and waits for no writer."""
    return _mark(Kind.QUERY, function, name, timeout_ms)


@overload
def workflow(function: F, /) -> F: ...
@overload
def workflow(*, name: str | None = None, timeout_ms: int | None = None) -> Callable[[F], F]: ...
def workflow(function: Any = None, /, *, name: str | None = None, timeout_ms: int | None = None) -> Any:
    """Marks a handler that runs for long, in steps that survive crashes. It is sent to, not called."""
    return _mark(Kind.WORKFLOW, function, name, timeout_ms)


def route(pattern: str) -> Callable[[F], F]:
    """Marks an HTTP function, mounted below the service's name: ``@route("GET /users/:id")``.

    It gets a :class:`millrace.Request` and has no entity of its own; all its calls are one transaction.
    """
    method, _, path = pattern.partition(" ")
    if not method.isalpha() or not path.startswith("/"):
        raise TypeError(f'a route is a method and a path, such as "GET /users/:id", not {pattern!r}')

    def mark(function: F) -> F:
        marks = marks_of(function)
        marks.kind, marks.route, marks.decorated = Kind.ROUTE, f"{method.upper()} {path}", True
        return function

    return mark


def schedule(cron: str, *, key: str, input: Any = None, name: str | None = None) -> Callable[[F], F]:
    """Has a handler called on the entity ``key`` at certain times, in UTC, as crontab(5) writes them."""

    def mark(function: F) -> F:
        marks_of(function).schedules.append(Schedule(cron, key, input, name))
        return function

    return mark


class Parameter:
    """One parameter of a handler."""

    __slots__ = ("default", "name", "type")

    def __init__(self, name: str, type: Type, default: Any) -> None:
        self.name = name
        self.type = type
        self.default = default


class Signature:
    """The types of a handler's input and output."""

    def __init__(self, function: Callable[..., Any], names: dict[str, Any] | None) -> None:
        hints = typing.get_type_hints(function, localns=names)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.parameters = [
            Parameter(parameter.name, type_of(hints.get(parameter.name, Any)), parameter.default)
            for parameter in parameters
        ]
        self._returns = hints.get("return", Any)
        self.output: Type = type_of(self._returns)
        self._single = self.parameters[0] if len(self.parameters) == 1 else None

    def load_input(self, data: bytes) -> tuple[Any, ...]:
        """The arguments that an input stands for: null, one value, or an object of the parameters."""
        try:
            value = loads(data)
        except ValueError as error:
            raise InvalidInput(f"the input is not JSON: {error}") from None
        try:
            if self._single is not None:
                return (self._load_single(self._single, value),)
            if not self.parameters:
                if value is None or value == {}:
                    return ()
                raise Mismatch("null, because the handler has no parameters", value)
            return tuple(self._load_object(value))
        except Mismatch as mismatch:
            raise InvalidInput(mismatch.told("input" if not mismatch.place else "")) from None

    def _load_single(self, parameter: Parameter, value: Any) -> Any:
        if value is None and parameter.default is not _EMPTY:
            return parameter.default
        # {"amount": 5} for a parameter `amount` that is no object itself.
        named = type(value) is dict and len(value) == 1 and parameter.name in value
        if named and isinstance(parameter.type, Scalar):
            return self._load_one(parameter, value[parameter.name])
        try:
            return parameter.type.load(value, True)
        except Mismatch as mismatch:
            if named:
                return self._load_one(parameter, value[parameter.name])
            if (value is None or value == {}) and not mismatch.place:
                mismatch = Mismatch(mismatch.expected, MISSING)
            raise mismatch.within(parameter.name) from None

    def _load_object(self, value: Any) -> list[Any]:
        if value is None:
            value = {}
        if type(value) is not dict:
            names = ", ".join([parameter.name for parameter in self.parameters])
            raise Mismatch(f"an object of the parameters {names}", value)
        arguments = []
        used = 0
        for parameter in self.parameters:
            if parameter.name in value:
                used += 1
                arguments.append(self._load_one(parameter, value[parameter.name]))
            elif parameter.default is not _EMPTY:
                arguments.append(parameter.default)
            else:
                raise Mismatch("a value", MISSING).within(parameter.name)
        if used != len(value):
            known = {parameter.name for parameter in self.parameters}
            unknown = next(name for name in value if name not in known)
            raise Mismatch("no such parameter", value[unknown]).within(unknown)
        return arguments

    @staticmethod
    def _load_one(parameter: Parameter, value: Any) -> Any:
        try:
            return parameter.type.load(value, True)
        except Mismatch as mismatch:
            raise mismatch.within(parameter.name) from None

    def dump_input(self, given: dict[str, Any]) -> bytes:
        """The input for a call with these arguments."""
        try:
            if self._single is not None:
                name = self._single.name
                return self._dump_one(self._single, given[name]) if name in given else b"null"
            if not given:
                return b"null"
            members = {
                parameter.name: parameter.type.dump(given[parameter.name])
                for parameter in self.parameters
                if parameter.name in given
            }
            return dumps(members)
        except Mismatch as mismatch:
            raise TypeMismatch(mismatch.told("")) from None
        except (TypeError, ValueError) as error:
            raise TypeMismatch(f"the input is not JSON: {error}") from None

    @staticmethod
    def _dump_one(parameter: Parameter, value: Any) -> bytes:
        try:
            return dumps(parameter.type.dump(value))
        except Mismatch as mismatch:
            raise mismatch.within(parameter.name) from None

    def dump_output(self, value: Any) -> bytes:
        try:
            return dumps(self.output.dump(value))
        except Mismatch as mismatch:
            raise TypeMismatch(mismatch.told("the output")) from None

    def load_output(self, data: bytes) -> Any:
        try:
            return self.output.load(loads(data), False)
        except Mismatch as mismatch:
            raise TypeMismatch(mismatch.told("the output")) from None

    def input_schema(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        described = [parameter.type.schema(definitions) for parameter in self.parameters]
        if not described:
            schema: dict[str, Any] = {"enum": [None, {}]}
        else:
            schema = {
                "type": "object",
                "properties": {
                    parameter.name: part for parameter, part in zip(self.parameters, described, strict=True)
                },
                "required": [each.name for each in self.parameters if each.default is _EMPTY],
                "additionalProperties": False,
            }
            forms = [described[0], schema] if self._single is not None else [schema]
            if not schema["required"]:
                forms.append({"type": "null"})
            schema = forms[0] if len(forms) == 1 or not forms[0] else {"anyOf": forms}
        return {**schema, "$defs": definitions} if definitions else schema

    def output_schema(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        schema = self.output.schema(definitions)
        return {**schema, "$defs": definitions} if definitions else schema


def _awaits(function: Callable[..., Any]) -> bool:
    """Whether a function's own code awaits anything."""
    return any(instruction.opname in _AWAITING for instruction in dis.get_instructions(function))


class Handler:
    """A method that can be called. On an entity that runs here it is the method; elsewhere it makes calls."""

    def __init__(self, function: Callable[..., Any], marks: Marks, names: dict[str, Any] | None) -> None:
        self.function = function
        self._names = names
        self.name = marks.route or marks.name or function.__name__
        self.kind = marks.kind
        self.timeout_ms = marks.timeout_ms
        self.schedules = marks.schedules
        self.is_async = inspect.iscoroutinefunction(function)
        self.never_waits = self.is_async and not _awaits(function)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._signature: Signature | None = None
        self._arguments = inspect.signature(function)
        for parameter in list(self._arguments.parameters.values())[1:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{function.__qualname__}: a handler's parameters have names, so not {parameter}")

    @property
    def signature(self) -> Signature:
        # Looked at late: annotations may name classes that are defined after this one.
        if self._signature is None:
            self._signature = Signature(self.function, self._names)
        return self._signature

    def bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """The input of a call, from its arguments."""
        bound = self._arguments.bind(None, *arguments, **named).arguments
        bound.pop(next(iter(bound)))  # self
        return self.signature.dump_input(bound)

    @overload
    def __get__(self, entity: None, owner: type) -> Handler: ...
    @overload
    def __get__(self, entity: Service, owner: type) -> Callable[..., Any]: ...
    def __get__(self, entity: Service | None, owner: type) -> Any:
        if entity is None:
            return self
        if entity._attempt is not None:
            return self.function.__get__(entity, owner)
        return Bound(entity, self)


class Bound:
    """A handler of an entity that is elsewhere: calling it makes a call."""

    __slots__ = ("entity", "handler")

    def __init__(self, entity: Service, handler: Handler) -> None:
        self.entity = entity
        self.handler = handler

    def __call__(self, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any] | Any:
        from .context import call_bound

        return call_bound(self, arguments, named)

    @property
    def address(self) -> tuple[str, bytes, str]:
        """Service, key and handler."""
        return type(self.entity).service_name(), self.entity.key_bytes, self.handler.name

    def __repr__(self) -> str:
        service, key, handler = self.address
        return f"<handler {service}/{key.decode(errors='replace')}/{handler}>"
