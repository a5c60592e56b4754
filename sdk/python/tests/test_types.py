"""Types: what is accepted, what is refused and where, and what discovery says of them."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Optional, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._types import Mismatch, dumps, loads, type_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    price: float = 0
    tags: set[str] = field(default_factory=set)
    parent: Optional[Item] = None  # noqa: UP045


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Place(NamedTuple):
    street: str
    number: int


class _Required(TypedDict):
    user: str


class Order(_Required, total=False):
    note: str
    items: list[Item]


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(gt=0)
    when: datetime.date | None = None


GOOD: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (int, 5.0, 5),
    (float, 1, 1),
    (str, "ä", "ä"),
    (bool, True, True),
    (type(None), None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (bytes, "AAE=", b"\0\1"),
    (Optional[int], None, None),  # noqa: UP045
    (int | str, "x", "x"),
    (list[int], [1, 2], [1, 2]),
    (set[str], ["a"], {"a"}),
    (frozenset[int], [1], frozenset({1})),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {"7": "a"}, {7: "a"}),
    (datetime.datetime, "2030-05-01T10:00:00+00:00", datetime.datetime(2030, 5, 1, 10, tzinfo=datetime.timezone.utc)),
    (datetime.date, "2030-05-01", datetime.date(2030, 5, 1)),
    (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (Colour, "red", Colour.RED),
    (Literal["a", 1], 1, 1),
    (Point, {"x": 1, "y": 2}, Point(1, 2)),
    (Place, ["Main", 5], Place("Main", 5)),
    (Item, {"name": "a", "price": 2.5, "tags": ["t"], "parent": {"name": "b"}}, Item("a", 2.5, {"t"}, Item("b"))),
    (Order, {"user": "u", "items": [{"name": "a"}]}, {"user": "u", "items": [Item("a")]}),
    (Model, {"size": 1, "when": "2030-05-01"}, Model(size=1, when=datetime.date(2030, 5, 1))),
]


@pytest.mark.parametrize(("annotation", "plain", "typed"), GOOD, ids=[str(row[0]) for row in GOOD])
def test_good_values(annotation: Any, plain: Any, typed: Any) -> None:
    type = type_of(annotation)
    assert type.load(plain, True) == typed
    again = type.load(loads(dumps(type.dump(typed))), True)
    assert again == typed
    dumps(type.schema({}))


BAD: list[tuple[Any, Any, str]] = [
    (int, True, "x: expected an integer, got True"),
    (int, 1.5, "x: expected an integer, got 1.5"),
    (str, 1, "x: expected a text, got 1"),
    (bool, 1, "x: expected true or false, got 1"),
    (bytes, "?", "x: expected bytes in base64"),
    (Optional[int], "a", "x: expected an integer or null"),  # noqa: UP045
    (list[int], {}, "x: expected a list"),
    (list[int], [1, "a"], "x[1]: expected an integer, got 'a'"),
    (tuple[int, str], [1], "x: expected 2 values"),
    (tuple[int, str], [1, 2], "x[1]: expected a text"),
    (dict[str, int], {"a": "b"}, "x.a: expected an integer"),
    (dict[int, str], {"a": "b"}, "x.a: expected an integer as key"),
    (datetime.date, "1.5.2030", "x: expected a date"),
    (uuid.UUID, "x", "x: expected a UUID"),
    (decimal.Decimal, "x", "x: expected a decimal"),
    (Colour, "green", "x: expected one of 'red', 'blue'"),
    (Literal["a"], 1, "x: expected one of 'a'"),
    (Point, {"x": 1}, "x.y is missing"),
    (Point, {"x": 1, "y": 2, "z": 3}, "x.z: expected no such member in Point"),
    (list[Item], [{"name": "a", "parent": {"name": 5}}], "x[0].parent.name: expected a text, got 5"),
    (Order, {"note": "n"}, "x.user is missing"),
    (Order, {"user": "u", "items": [{}]}, "x.items[0].name is missing"),
    (Model, {"size": 0}, "x.size: expected Input should be greater than 0, got 0"),
]


@pytest.mark.parametrize(("annotation", "plain", "told"), BAD, ids=[row[2] for row in BAD])
def test_bad_values_are_refused_with_their_place(annotation: Any, plain: Any, told: str) -> None:
    with pytest.raises(Mismatch) as caught:
        type_of(annotation).load(plain, True)
    assert caught.value.told("x").startswith(told)


def test_stored_values_may_have_members_of_before() -> None:
    assert type_of(Point).load({"x": 1, "y": 2, "z": 3}, False) == Point(1, 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"x"])
def test_what_json_cannot_hold_is_an_error(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        dumps(value)


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        loads(text)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_json_comes_out_as_it_went_in(value: Any) -> None:
    try:
        text = dumps(value)
    except UnicodeEncodeError:
        return  # A lone surrogate is no text.
    assert loads(text) == value
    assert type_of(Any).load(loads(text), True) == value


@pytest.mark.parametrize("annotation", [complex, dict[tuple[int, int], str], type("Sub", (int,), {})])
def test_types_that_json_would_lose_are_refused(annotation: Any) -> None:
    with pytest.raises(TypeError):
        type_of(annotation)


def test_schemas() -> None:
    definitions: dict[str, Any] = {}
    assert type_of(list[Item]).schema(definitions) == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert definitions["Item"]["required"] == ["name"]
    assert definitions["Item"]["properties"]["parent"] == {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]}
    assert type_of(dict[str, int]).schema({}) == {"type": "object", "additionalProperties": {"type": "integer"}}
