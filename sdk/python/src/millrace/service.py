"""Services: classes whose methods are handlers and whose annotations are fields."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ._protocol.payloads import Kind
from .errors import UsageError
from .fields import MISSING, Declaration, Field, ItemsField, Pending
from .handlers import Handler, marks_of
from .items import ITEM_VIEWS

if TYPE_CHECKING:
    from ._worker.attempt import Attempt
    from ._worker.state import State
    from .context import Context

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_RESERVED = {"key", "key_bytes", "ctx", "service_name"}

# Entities with collections are usually small: one that fits is sent whole and read without a question.
_WHOLE_UP_TO_BYTES = 4096


class Definition:
    """What a service consists of, once its annotations are known."""

    def __init__(self, cls: type[Service]) -> None:
        self.cls = cls
        self.name = cls.service_name()
        self.handlers: dict[str, Handler] = {}
        self.routes: dict[str, Handler] = {}
        self.fields: dict[str, Field | ItemsField] = {}
        for base in reversed(cls.__mro__):
            for attribute, member in list(vars(base).items()):
                if isinstance(member, Handler):
                    self._drop(attribute)
                    (self.routes if member.kind is Kind.ROUTE else self.handlers)[member.name] = member
                elif isinstance(member, (Field, ItemsField)):
                    self.fields[attribute] = member
        self.declared = sorted([field.name for field in self.fields.values() if field.declared])
        self.declared_set = frozenset(self.declared)
        has_items = any(isinstance(field, ItemsField) for field in self.fields.values())
        default = _WHOLE_UP_TO_BYTES if has_items else 0
        self.whole_up_to_bytes = default if cls._whole_up_to_bytes is None else cls._whole_up_to_bytes
        self.concurrency = cls._concurrency

    def _drop(self, attribute: str) -> None:
        """Forgets a handler of a base class that this class has replaced."""
        for table in (self.handlers, self.routes):
            for name in [name for name, handler in table.items() if handler.__name__ == attribute]:
                del table[name]


class Service:
    """The base of all services.

    ``Account("ann")`` names an entity. In a handler, calling its methods makes calls within the
    transaction. The instance that a handler has as ``self`` is the entity it runs on.
    """

    _name: ClassVar[str | None] = None
    _whole_up_to_bytes: ClassVar[int | None] = None
    _concurrency: ClassVar[int | None] = None
    _definition: ClassVar[Definition | None] = None
    _fields_left: ClassVar[Callable[[], None] | None] = None

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        whole_up_to_bytes: int | None = None,
        concurrency: int | None = None,
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"{cls.__name__}: a concurrency of {concurrency} would let nothing run")
        cls._name = name
        cls._definition = None
        cls._whole_up_to_bytes = whole_up_to_bytes
        cls._concurrency = concurrency
        if not _NAME.fullmatch(cls.service_name()):
            raise TypeError(f"{cls.service_name()!r} cannot be the name of a service")
        if "__init__" in vars(cls):
            raise TypeError(f"{cls.__name__}: a service has no __init__; declare fields with defaults")
        names = _names_of_caller()
        _declare_handlers(cls, names)
        _declare_fields(cls)
        cls._fields_left = lambda: _resolve_fields(cls, names)

    def __init__(self, key: str | bytes) -> None:
        self._set(key.encode() if isinstance(key, str) else bytes(key), None, None)

    def _set(self, key: bytes, attempt: Attempt | None, state: State | None) -> None:
        # Past __setattr__, which lets a handler set declared fields only.
        own = self.__dict__
        own["_key"] = key
        own["_attempt"] = attempt
        own["_state"] = state

    if TYPE_CHECKING:
        _key: bytes
        _attempt: Attempt | None
        _state: State | None

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_" and not hasattr(type(self), name):
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; nothing would store it. Annotate it in the class"
            )
        object.__setattr__(self, name, value)

    @classmethod
    def service_name(cls) -> str:
        """The name under which callers reach the service."""
        return cls._name or cls.__name__.lower()

    @classmethod
    def _define(cls) -> Definition:
        if cls._definition is None:
            for base in reversed(cls.__mro__):
                left = vars(base).get("_fields_left")
                if left is not None:
                    left()
                    base._fields_left = None  # type: ignore[attr-defined]
            cls._definition = Definition(cls)
        return cls._definition

    @property
    def key(self) -> str:
        """The entity's key. Bytes that are not UTF-8 show as U+FFFD; see :attr:`key_bytes`."""
        return self._key.decode(errors="replace")

    @property
    def key_bytes(self) -> bytes:
        return self._key

    @property
    def ctx(self) -> Context:
        """What a running handler can do beside reading and writing its fields."""
        if self._attempt is None:
            raise UsageError(f"{type(self).__name__}({self.key!r}) does not run here; only a handler has a ctx")
        return self._attempt.context

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._key == self._key

    def __hash__(self) -> int:
        return hash((type(self), self._key))


def _names_of_caller() -> dict[str, Any] | None:
    """Names where a class is being made, if that is within a function: its annotations may use them."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name == "__init_subclass__":
        frame = frame.f_back
    # The frame of the class's own body has ended; this is where the class statement stands.
    return None if frame.f_locals is frame.f_globals else frame.f_locals


def _declare_handlers(cls: type[Service], names: dict[str, Any] | None) -> None:
    for attribute, member in list(vars(cls).items()):
        if attribute.startswith("_") or not inspect.isfunction(member):
            continue
        if attribute in _RESERVED:
            raise TypeError(f"{cls.__name__}.{attribute}: the name is taken by the base class")
        marks = marks_of(member)
        if inspect.isgeneratorfunction(member) or inspect.isasyncgenfunction(member):
            raise TypeError(f"{cls.__name__}.{attribute}: a handler returns once, so it cannot yield")
        if marks.kind is Kind.WORKFLOW and not inspect.iscoroutinefunction(member):
            raise TypeError(f"{cls.__name__}.{attribute}: a workflow waits, so it must be an async def")
        setattr(cls, attribute, Handler(member, marks, names))


def _annotations(cls: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def _declare_fields(cls: type[Service]) -> None:
    """Puts a stand-in where each field will be: its annotation may name what is not defined yet."""
    for attribute, annotation in _annotations(cls).items():
        if attribute.startswith("_") or _is_class_variable(annotation):
            continue
        if attribute in _RESERVED:
            raise TypeError(f"{cls.__name__}.{attribute}: the name is taken by the base class")
        default = vars(cls).get(attribute, MISSING)
        declaration = default if isinstance(default, Declaration) else Declaration(default)
        setattr(cls, attribute, Pending(attribute, declaration))


def _resolve_fields(cls: type[Service], names: dict[str, Any] | None) -> None:
    hints: dict[str, Any] | None = None
    for attribute, pending in list(vars(cls).items()):
        if not isinstance(pending, Pending):
            continue
        if hints is None:
            hints = typing.get_type_hints(cls, localns={**(names or {}), **_module_names(cls)})
        try:
            setattr(cls, attribute, _field(attribute, hints[attribute], pending.declaration))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{cls.__name__}.{attribute}: {error}") from None


def _module_names(cls: type) -> dict[str, Any]:
    return dict(vars(sys.modules.get(cls.__module__, typing)))


def _field(attribute: str, annotation: Any, declaration: Declaration) -> Field | ItemsField:
    origin = typing.get_origin(annotation) or annotation
    view = ITEM_VIEWS.get(origin) if isinstance(origin, type) else None
    if view is None:
        return Field(attribute, annotation, declaration)
    if declaration.default is not MISSING or declaration.factory is not None:
        raise TypeError("a Lazy, Map or List begins empty and has no default")
    return ItemsField(attribute, view, view.types_of(typing.get_args(annotation)), declaration.name or attribute)
