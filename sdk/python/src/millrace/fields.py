"""Fields of a service: annotations of its class."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ._types import Type, type_of
from ._worker.state import State, _Unknown, decode, encode
from .errors import UsageError

if TYPE_CHECKING:
    from .service import Service

T = TypeVar("T")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


class Declaration:
    """What ``field(…)`` says of a field."""

    def __init__(self, default: Any = MISSING, factory: Callable[[], Any] | None = None, name: str | None = None):
        self.default = default
        self.factory = factory
        self.name = name


@overload
def field(*, default: T, name: str | None = None) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], name: str | None = None) -> T: ...
@overload
def field(*, name: str | None = None) -> Any: ...
def field(*, default: Any = MISSING, default_factory: Callable[[], Any] | None = None, name: str | None = None) -> Any:
    """Says more of a field than its annotation: a default that is made anew, the name it is stored under."""
    if default is not MISSING and default_factory is not None:
        raise TypeError("give a default or a default_factory, not both")
    return Declaration(default, default_factory, name)


class Field:
    """A field whose whole value travels at the start of a call. It is read and written as an attribute."""

    #: Whether the field's name is declared to the server, which then sends its value with each call.
    declared = True

    def __init__(self, attribute: str, annotation: Any, declaration: Declaration) -> None:
        self.attribute = attribute
        self.name = (declaration.name or attribute).encode()
        self.type: Type = type_of(annotation)
        self._declaration = declaration
        default = declaration.default
        self._shared_default = default if not self.type.mutable else MISSING
        if default is not MISSING:
            # Refuses a default of another type while the class is made, not at the first call.
            encode(self.type, default, attribute)

    @overload
    def __get__(self, entity: None, owner: type) -> Field: ...
    @overload
    def __get__(self, entity: Service, owner: type) -> Any: ...
    def __get__(self, entity: Any, owner: type) -> Any:
        if entity is None:
            return self
        state: State | None = entity._state
        if state is None:
            self._refuse(entity)
        try:
            return state.values[self.attribute]
        except KeyError:
            return self._read(state)

    def __set__(self, entity: Any, value: Any) -> None:
        state: State | None = entity._state
        if state is None:
            self._refuse(entity)
        state.assign(self.attribute, self.name, self.type, value)

    def __delete__(self, entity: Any) -> None:
        state: State | None = entity._state
        if state is None:
            self._refuse(entity)
        state.remove(self.attribute, self.name)

    def _refuse(self, entity: Any) -> NoReturn:
        raise UsageError(
            f"{type(entity).__name__}.{self.attribute} cannot be reached here: only a handler that runs on the "
            "entity has its fields. Call a handler of the entity; a workflow or route does so too"
        )

    def _read(self, state: State) -> Any:
        stored = state.lookup(self.name)
        if isinstance(stored, _Unknown):
            raise UsageError(f"{self.attribute} is not known yet")
        value = self._default() if stored is None else decode(self.type, stored, self.attribute)
        if self.type.mutable:
            baseline = stored or encode(self.type, value, self.attribute)
            state.hand_out(self.attribute, self.name, self.type, value, baseline)
        else:
            state.values[self.attribute] = value
        return value

    def _default(self) -> Any:
        if self._shared_default is not MISSING:
            return self._shared_default
        declaration = self._declaration
        if declaration.factory is not None:
            return declaration.factory()
        if declaration.default is not MISSING:
            return copy.deepcopy(declaration.default)
        raise AttributeError(f"the field {self.attribute} is not set and has no default")


class ItemsField:
    """A field that is reached item by item: ``Lazy``, ``Map``, ``List``."""

    def __init__(self, attribute: str, view: Callable[[Any, ItemsField], Any], types: tuple[Type, ...], name: str):
        self.attribute = attribute
        self.name = name.encode()
        self.types = types
        self._view = view
        self.declared = bool(getattr(view, "declared", False))

    def __get__(self, entity: Any, owner: type) -> Any:
        if entity is None:
            return self
        if entity._state is None:
            raise UsageError(f"{owner.__name__}.{self.attribute} cannot be reached here: call a handler")
        return self._view(entity._attempt, self)

    def __set__(self, entity: Any, value: Any) -> None:
        raise UsageError(f"{self.attribute} cannot be assigned: use its methods")


class Pending:
    """Stands in a class for a field whose annotation is looked at when the service is first used."""

    def __init__(self, attribute: str, declaration: Declaration) -> None:
        self.attribute = attribute
        self.declaration = declaration
