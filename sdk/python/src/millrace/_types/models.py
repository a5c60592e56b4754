"""Types with named members: dataclasses, TypedDicts, pydantic models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import MISSING, Mismatch, Type


class Member:
    """One named member of a record type."""

    def __init__(self, name: str, type: Type, required: bool) -> None:
        self.name = name
        self.type = type
        self.required = required


class Members(Type):
    """What dataclasses and TypedDicts have in common. Types may refer to themselves: members come later."""

    plain = False

    def __init__(self, name: str, kind: type, make: Callable[..., Any], mutable: bool = True) -> None:
        self._name = name
        self._kind = kind
        self._make = make
        self._members: dict[str, Member] = {}
        self.mutable = mutable

    def fill(self, members: list[Member]) -> None:
        self._members = {member.name: member for member in members}
        self.mutable = self.mutable or any(member.type.mutable for member in members)

    def load(self, value: Any, strict: bool) -> Any:
        if type(value) is not dict:
            raise Mismatch(f"an object ({self._name})", value)
        loaded = {}
        for name, member in self._members.items():
            if name in value:
                try:
                    loaded[name] = member.type.load(value[name], strict)
                except Mismatch as mismatch:
                    raise mismatch.within(name) from None
            elif member.required:
                raise Mismatch("a value", MISSING).within(name)
        if strict and len(loaded) != len(value):
            unknown = next(name for name in value if name not in self._members)
            raise Mismatch(f"no such member in {self._name}", value[unknown]).within(unknown)
        return self._make(**loaded)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise Mismatch(f"a {self._name}", value)
        dumped = {}
        for name, member in self._members.items():
            found, part = self._part(value, name)
            if not found:
                if member.required:
                    raise Mismatch("a value", MISSING).within(name)
                continue
            try:
                dumped[name] = member.type.dump(part)
            except Mismatch as mismatch:
                raise mismatch.within(name) from None
        return dumped

    def _part(self, value: Any, name: str) -> tuple[bool, Any]:
        raise NotImplementedError

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        if self._name not in definitions:
            # Entered before its members, which may refer back to it.
            described: dict[str, Any] = {"type": "object"}
            definitions[self._name] = described
            described["properties"] = {name: member.type.schema(definitions) for name, member in self._members.items()}
            described["required"] = [name for name, member in self._members.items() if member.required]
            described["additionalProperties"] = False
        return {"$ref": f"#/$defs/{self._name}"}


class Dataclass(Members):
    def _part(self, value: Any, name: str) -> tuple[bool, Any]:
        return True, getattr(value, name)


class Typed(Members):
    """A TypedDict, which is a dict."""

    def _part(self, value: Any, name: str) -> tuple[bool, Any]:
        return name in value, value.get(name)

    def dump(self, value: Any) -> Any:
        dumped = super().dump(value)
        if len(dumped) != len(value):
            unknown = next(name for name in value if name not in dumped)
            raise Mismatch(f"no such member in {self._name}", value[unknown]).within(str(unknown))
        return dumped


class Pydantic(Type):
    """A pydantic model, or whatever has its methods: this package does not import pydantic."""

    plain = False

    def __init__(self, model: Any) -> None:
        self._model = model

    def load(self, value: Any, strict: bool) -> Any:
        try:
            return self._model.model_validate(value)
        except ValueError as error:
            raise _first_problem(error, value) from None

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._model):
            raise Mismatch(f"a {self._model.__name__}", value)
        return value.model_dump(mode="json")

    def schema(self, definitions: dict[str, Any]) -> dict[str, Any]:
        described = self._model.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(described.pop("$defs", {}))
        definitions[self._model.__name__] = described
        return {"$ref": f"#/$defs/{self._model.__name__}"}


def _first_problem(error: ValueError, value: Any) -> Mismatch:
    problems: list[Any] = getattr(error, "errors", list)()
    if not problems:
        return Mismatch(str(error), value)
    first = problems[0]
    mismatch = Mismatch(str(first["msg"]), first.get("input"))
    mismatch.place = list(reversed(first["loc"]))
    return mismatch
