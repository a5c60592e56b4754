"""From an annotation to its type."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from typing import Any

from .base import Bytes, Choice, Converted, Integer, Null, Number, Scalar, Type
from .containers import Dict, IntegerKey, Items, Tuple, Union
from .models import Dataclass, Member, Pydantic, Typed

_ANY = Type()
_SCALARS: dict[Any, Type] = {
    Any: _ANY,
    object: _ANY,
    None: Null(),
    type(None): Null(),
    bool: Scalar((bool,), "true or false", {"type": "boolean"}),
    int: Integer(),
    float: Number(),
    str: Scalar((str,), "a text", {"type": "string"}),
    bytes: Bytes(),
    datetime.datetime: Converted(
        datetime.datetime,
        "a date and time as in RFC 3339",
        {"type": "string", "format": "date-time"},
        # Python 3.10 does not read the Z.
        lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00")),
        datetime.datetime.isoformat,
    ),
    datetime.date: Converted(
        datetime.date,
        "a date",
        {"type": "string", "format": "date"},
        datetime.date.fromisoformat,
        datetime.date.isoformat,
    ),
    uuid.UUID: Converted(uuid.UUID, "a UUID", {"type": "string", "format": "uuid"}, uuid.UUID),
    decimal.Decimal: Converted(decimal.Decimal, "a decimal as text", {"type": "string"}, decimal.Decimal),
    # Without parameters a container holds anything.
    list: Items(_ANY, list, (list,)),
    set: Items(_ANY, set, (set, frozenset)),
    tuple: Items(_ANY, tuple, (tuple, list)),
    dict: Dict(None, _ANY),
}
_LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.MutableSequence)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly", "Annotated", "Final", "ClassVar"}

# One type for each annotation: building a model takes a while, and recursive ones must meet themselves.
_known: dict[Any, Type] = {}


def type_of(annotation: Any) -> Type:
    """The type that an annotation names. Raises ``TypeError`` for one that JSON cannot hold."""
    try:
        known = _known.get(annotation)
    except TypeError:  # A Literal of something unhashable, say.
        return _build(annotation)
    if known is None:
        known = _SCALARS.get(annotation) or _build(annotation)
        _known[annotation] = known
    return known


def _build(annotation: Any) -> Type:
    if isinstance(annotation, typing.TypeVar):
        return type_of(annotation.__bound__) if annotation.__bound__ else _ANY
    if hasattr(annotation, "__supertype__"):
        return type_of(annotation.__supertype__)
    if isinstance(getattr(annotation, "__value__", None), (type, types.GenericAlias, types.UnionType)):
        return type_of(annotation.__value__)  # `type Name = …` of Python 3.12.
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _generic(annotation, origin, typing.get_args(annotation))
    if isinstance(annotation, type):
        return _class(annotation)
    raise TypeError(f"{annotation!r} is not a type that JSON can hold")


def _generic(annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Type:
    if getattr(origin, "_name", getattr(origin, "__name__", "")) in _QUALIFIERS or origin is typing.Annotated:
        return type_of(arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        return Union([type_of(argument) for argument in arguments])
    if origin is typing.Literal:
        return Choice([(argument, argument) for argument in arguments], plain=True)
    if origin in _LISTS:
        return Items(type_of(arguments[0]), list, (list, tuple))
    if origin in _SETS:
        make = frozenset if origin in (frozenset, collections.abc.Set) else set
        return Items(type_of(arguments[0]), make, (set, frozenset))
    if origin in _DICTS:
        key, value = arguments
        return Dict(_key(key), type_of(value))
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return Items(type_of(arguments[0]), tuple, (tuple, list))
        return Tuple([type_of(argument) for argument in arguments])
    return _class(origin)


def _key(annotation: Any) -> Type | None:
    if annotation in (str, Any):
        return None
    if annotation is int:
        return IntegerKey()
    key = type_of(annotation)
    if isinstance(key, (Converted, Choice)):
        return key
    raise TypeError(f"keys of a dict are texts; {annotation!r} has no text form")


def _class(cls: type) -> Type:
    if hasattr(cls, "model_validate") and hasattr(cls, "model_json_schema"):
        return Pydantic(cls)
    if issubclass(cls, enum.Enum):
        return Choice([(member.value, member) for member in cls], plain=False)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    if _is_typed_dict(cls):
        return _typed_dict(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = typing.get_type_hints(cls)
        return Tuple([type_of(hints.get(name, Any)) for name in cls._fields], cls)
    for base in cls.__mro__[1:]:
        if base in (int, float, str):
            raise TypeError(f"{cls.__name__} is a {base.__name__} of its own; JSON would lose that")
    raise TypeError(f"{cls.__name__} is not a type that JSON can hold: make it a dataclass or a model")


def _is_typed_dict(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__total__")


def _dataclass(cls: Any) -> Type:
    made = Dataclass(cls.__name__, cls, cls, mutable=not cls.__dataclass_params__.frozen)
    _known[cls] = made
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    made.fill(
        [
            Member(
                field.name,
                type_of(hints[field.name]),
                field.default is missing and field.default_factory is missing,
            )
            for field in dataclasses.fields(cls)
            if field.init
        ]
    )
    return made


def _typed_dict(cls: Any) -> Type:
    made = Typed(cls.__name__, dict, dict)
    _known[cls] = made
    hints = typing.get_type_hints(cls)
    made.fill([Member(name, type_of(hint), name in cls.__required_keys__) for name, hint in hints.items()])
    return made
