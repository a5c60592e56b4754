"""Handlers against a server in this process: fields, calls, suspension, replay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from fake_server import FakeServer, ServerError

from millrace import (
    Abort,
    CallError,
    Lazy,
    List,
    Map,
    Request,
    Response,
    Retry,
    Service,
    TerminalError,
    WaitTimeout,
    field,
    query,
    route,
    schedule,
    transaction,
    workflow,
)
from millrace._protocol import payloads
from millrace._protocol.frames import Type
from millrace._protocol.payloads import Failure, Kind, Value
from millrace._worker.worker import Worker

T = TypeVar("T")


# Exceptions that `except Exception` lets through.
LEAVING = {error.__name__: error for error in (asyncio.CancelledError, KeyboardInterrupt, SystemExit)}


@dataclass
class Seat:
    row: int
    guest: str | None = None


class Account(Service):
    balance: int = 0

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def transfer(self, to: str, amount: int) -> None:
        if self.balance < amount:
            raise Abort("insufficient funds", {"balance": self.balance})
        self.balance -= amount
        await Account(to).deposit(amount)

    async def both(self, keys: list[str]) -> list[int]:
        return list(await asyncio.gather(*[Account(key).deposit(1) for key in keys]))

    async def try_transfer(self, to: str, amount: int) -> str:
        try:
            await Account(self.key).transfer(to, amount)
        except Abort as refusal:
            return f"{refusal.message} {refusal.payload}"
        return "done"

    async def calls_itself(self, amount: int) -> int:
        self.balance += 1
        await Account(self.key).deposit(amount)
        self.balance += 1
        return self.balance

    async def broken(self) -> None:
        raise ValueError("no such luck")

    async def leaves_at_once(self, name: str) -> None:
        raise LEAVING[name]

    async def leaves_before_a_call(self, name: str) -> None:
        if name in LEAVING:
            raise LEAVING[name]
        await Account("other").deposit(1)

    async def leaves_after_a_call(self, name: str) -> None:
        await Account("other").deposit(1)
        raise LEAVING[name]

    def plain_leaves(self, name: str) -> None:
        raise LEAVING[name]

    async def refused_for_good(self) -> None:
        raise TerminalError("the data is broken")

    async def calls_nobody(self) -> str:
        try:
            await self.ctx.call("account", "x", "no_such")
        except CallError as error:
            return error.code
        return ""

    @query
    async def show(self) -> int:
        return self.balance

    @query
    async def writes(self) -> None:
        self.balance = 5

    def deposit_twice(self, amount: int) -> int:
        first = self.ctx.result(Account("other").deposit(amount))
        self.balance += amount
        return first + Account("other").plain(amount)

    def plain(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def call_plain(self) -> int:
        return await self.ctx.call(Account("other").plain, 3)


class Hall(Service):
    name: str = field(default="hall", name="title")
    tags: list[str] = []  # noqa: RUF012
    photo: Lazy[bytes]
    seats: Map[str, Seat]
    days: Map[int, str]
    log: List[int]

    async def tag(self, tag: str) -> list[str]:
        self.tags.append(tag)
        return self.tags

    async def look(self) -> list[str]:
        return self.tags

    async def set_photo(self, text: str) -> None:
        self.photo.set(text.encode())

    async def photo_size(self) -> int:
        return len(await self.photo or b"")

    async def book(self, number: str, guest: str) -> str:
        seat = await self.seats.get(number)
        if seat is not None and seat.guest is not None:
            raise Abort(f"{number} is taken")
        self.seats[number] = Seat(1, guest)
        return ", ".join([key async for key in self.seats.keys()])

    async def free(self, number: str) -> bool:
        return await self.seats.pop(number) is not None

    async def note(self, day: int, text: str) -> list[tuple[int, str]]:
        self.days[day] = text
        return await self.days.page()

    async def push(self, numbers: list[int]) -> int:
        self.log.extend(numbers)
        return len(self.log)

    async def pop(self) -> int:
        return await self.log.pop()

    async def at(self, index: int) -> int:
        return await self.log[index]

    async def all(self) -> list[int]:
        return [number async for number in self.log]

    async def part(self, start: int, stop: int) -> list[int]:
        return await self.log.slice(start, stop)

    async def clear(self) -> None:
        self.log.clear()

    async def push_twice(self, number: int) -> list[int]:
        self.log.append(number)
        await Hall(self.key).push([number + 1])
        self.log.append(number)
        return await self.log.slice()

    async def rename(self, name: str | None) -> str:
        if name is None:
            del self.name
        else:
            self.name = name
        return self.name

    async def misspelt(self) -> None:
        self.nmae = "x"

    async def raw(self, field: str, value: Any) -> Any:
        before = await self.ctx.get(field)
        self.ctx.set(field, value)
        return [before, await self.ctx.get(field), await self.ctx.fields(prefix=field)]


class Trip(Service):
    @workflow
    async def book(self, guest: str) -> str:
        self.ctx.compensate(Account(guest).deposit, 80)
        await self.ctx.call_with(Retry(attempts="unlimited", first_ms=50), Account(guest).deposit, 100)
        token = await self.ctx.step("token", make_token, guest, retry=Retry(attempts=3))
        await self.ctx.sleep(timedelta(minutes=1))
        answer = await self.ctx.wait("confirmed", timeout=5)
        response = await self.ctx.fetch("http://pay.test/", method="post", body={"token": token})
        self.ctx.signal("inv_2", "done", {"status": response.status})
        return f"{token} {answer} {response.json()}"

    @workflow
    async def waits(self) -> str:
        try:
            await self.ctx.wait("never", timeout=1)
        except TimeoutError as error:
            return "nobody" if isinstance(error, WaitTimeout) else "?"
        return "somebody"

    @workflow
    async def step_beside_a_wait(self) -> list[str]:
        async def rest() -> str:
            await asyncio.sleep(0.05)
            return "rested"

        return list(await asyncio.gather(self.ctx.step("rest", rest), self.ctx.wait("x")))

    @workflow
    async def failing_step(self) -> str:
        try:
            await self.ctx.step("breaks", divide, 1, 0)
        except CallError as error:
            return error.code
        return "?"

    @workflow
    async def hopeless_step(self) -> str:
        try:
            await self.ctx.step("hopeless", give_up)
        except Abort as refusal:
            return refusal.message
        return "?"

    @workflow
    async def fickle(self) -> None:
        if len(RUNS) > 0:
            await self.ctx.sleep(1)
        RUNS.append(1)
        await self.ctx.sleep(2)
        await self.ctx.sleep(3)

    @workflow
    async def family(self) -> list[Any]:
        ids = [await self.ctx.send_as("order-17", Trip("t").book, "ann"), "inv_1"]
        outputs = [await self.ctx.result(id, timeout=2.5) for id in ids if id is not None]
        try:
            await self.ctx.result("inv_2")
        except Abort as refusal:
            outputs.append(refusal.message)
        return [*ids, *outputs]

    @workflow
    async def one_result(self) -> Any:
        return await self.ctx.result("inv_3")

    async def sleeps(self) -> None:
        await self.ctx.sleep(1)

    async def awaits_another(self) -> Any:
        return await self.ctx.result("inv_1")

    @schedule("0 3 * * *", key="main", input={"days": 1})
    async def sweep(self, days: int) -> None:
        self.ctx.log("swept", days, level="warn")

    async def starts(self) -> str | None:
        await self.ctx.send_after(2.5, Trip("t").book, "ann")
        self.ctx.send("account", "ann", "deposit", 5)
        return self.ctx.uuid() + str(self.ctx.random()) + str(self.ctx.now_ms())

    @route("POST /book/:guest")
    async def http_book(self, request: Request) -> Any:
        amount = request.json()["amount"]
        return {"balance": await Account(request.params["guest"]).deposit(amount), "q": request.query.get("q")}

    @route("GET /text")
    async def text(self, request: Request) -> Response:
        return Response("hi", status=418, headers={"x-a": ["1", "2"]})

    @route("DELETE /nothing")
    def nothing(self, request: Request) -> None:
        return None


RUNS: list[int] = []


async def make_token(guest: str) -> str:
    await asyncio.sleep(0)
    return f"token of {guest}"


def give_up() -> None:
    raise TerminalError("the data is broken")


def divide(a: int, b: int) -> float:
    return a / b


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


MODES = {
    "kept": {},
    "replayed": {"replay": True},
    "one by one": {"one_by_one": True},
    "replayed one by one": {"replay": True, "one_by_one": True},
    "asked for": {"whole": False},
}


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def server(request: pytest.FixtureRequest) -> FakeServer:
    return FakeServer(Worker([Account, Hall, Trip]), **request.param)


def test_a_handler_of_its_own_entity_costs_one_turn(server: FakeServer) -> None:
    assert run(server.call("account", "ann", "deposit", 5)) == 5
    assert run(server.call("account", "ann", "deposit", {"amount": 2})) == 7
    assert run(server.call("account", "ann", "show")) == 7
    assert server.turns == 3
    assert [frame.type for frame in server.frames] == [Type.SET, Type.OUTPUT] * 2 + [Type.OUTPUT]


def test_a_call_joins_the_transaction(server: FakeServer) -> None:
    run(server.call("account", "ann", "deposit", 100))
    run(server.call("account", "ann", "transfer", {"to": "bob", "amount": 30}))
    assert run(server.call("account", "ann", "show")) == 70
    assert run(server.call("account", "bob", "show")) == 30


def test_an_abort_undoes_everything_and_carries_its_payload(server: FakeServer) -> None:
    with pytest.raises(ServerError) as caught:
        run(server.call("account", "ann", "transfer", {"to": "bob", "amount": 1}))
    assert (caught.value.code, caught.value.detail) == ("aborted", {"balance": 0})
    assert server.entities == {}
    # And a caller may catch it.
    assert run(server.call("account", "x", "try_transfer", {"to": "y", "amount": 9})) == (
        "insufficient funds {'balance': 0}"
    )


def test_calls_side_by_side_are_made_in_order(server: FakeServer) -> None:
    assert run(server.call("account", "ann", "both", ["x", "y", "x", "z"])) == [1, 1, 2, 1]
    calls = [frame for frame in server.frames if frame.type is Type.CALL]
    assert len(calls) == 4


def test_what_a_callee_writes_in_the_callers_entity_is_seen(server: FakeServer) -> None:
    run(server.call("account", "ann", "deposit", 10))
    assert run(server.call("account", "ann", "calls_itself", 100)) == 112
    assert run(server.call("account", "ann", "show")) == 112
    assert run(server.call("hall", "h", "push_twice", 7)) == [7, 8, 7]


def test_an_error_tells_the_users_file_and_line(server: FakeServer) -> None:
    with pytest.raises(ServerError) as caught:
        run(server.call("account", "ann", "broken"))
    assert caught.value.code == "function-failed"
    assert caught.value.message.startswith("ValueError: no such luck (test_engine.py:")
    assert 'raise ValueError("no such luck")' in caught.value.trace
    assert "attempt.py" not in caught.value.trace
    assert not server.frames[-1].flags
    with pytest.raises(ServerError):
        run(server.call("account", "ann", "refused_for_good"))
    assert server.frames[-1].flags == 1


@pytest.mark.parametrize("error", LEAVING)
@pytest.mark.parametrize("handler", ["leaves_at_once", "leaves_before_a_call", "leaves_after_a_call", "plain_leaves"])
def test_what_is_no_exception_fails_the_call_as_well(server: FakeServer, handler: str, error: str) -> None:
    with pytest.raises(ServerError) as caught:
        run(server.call("account", "ann", handler, error))
    assert caught.value.code == "function-failed"
    # The worker is none the worse for it.
    assert run(server.call("account", "ann", "deposit", 5)) == 5


def test_an_unknown_handler_has_a_code(server: FakeServer) -> None:
    assert run(server.call("account", "ann", "calls_nobody")) == "unknown-handler"


def test_a_query_does_not_write(server: FakeServer) -> None:
    with pytest.raises(ServerError, match="a query only reads"):
        run(server.call("account", "ann", "writes"))


def test_plain_handlers_run_in_threads(server: FakeServer) -> None:
    assert run(server.call("account", "ann", "deposit_twice", 5)) == 15
    assert run(server.call("account", "ann", "call_plain")) == 13
    assert run(server.call("account", "ann", "show")) == 5


@pytest.mark.parametrize(
    ("input", "problem"),
    [
        ("5", "amount: expected an integer, got '5'"),
        (True, "amount: expected an integer, got True"),
        ({"amount": 1, "x": 2}, "amount: expected an integer"),
        ({"amount": None}, "amount: expected an integer, got None"),
        (None, "amount is missing"),
        ({}, "amount is missing"),
    ],
)
def test_a_wrong_input_is_refused_with_its_place(server: FakeServer, input: Any, problem: str) -> None:
    with pytest.raises(ServerError, match=problem) as caught:
        run(server.call("account", "ann", "deposit", input))
    assert caught.value.code == "invalid-input"


def test_many_parameters_are_an_object(server: FakeServer) -> None:
    for input, problem in (
        ([], "expected an object of the parameters to, amount"),
        ({"to": "x"}, "amount is missing"),
        (None, "to is missing"),
        ({"to": "x", "amount": 1, "by": 2}, "by: expected no such parameter"),
    ):
        with pytest.raises(ServerError, match=problem):
            run(server.call("account", "ann", "transfer", input))
    with pytest.raises(ServerError, match="expected null"):
        run(server.call("account", "ann", "show", 5))


# -- fields ---------------------------------------------------------------------------------------


def test_a_list_that_is_changed_in_place_is_written(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "tag", "a")) == ["a"]
    assert run(server.call("hall", "h", "tag", "b")) == ["a", "b"]
    writes = len([frame for frame in server.frames if frame.type is Type.SET])
    assert run(server.call("hall", "h", "look")) == ["a", "b"]
    assert len([frame for frame in server.frames if frame.type is Type.SET]) == writes, "what is only read is not"
    assert run(server.call("hall", "other", "look")) == []


def test_fields_have_names_and_defaults_and_can_be_deleted(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "rename", "big")) == "big"
    assert server.entities["hall", b"h"] == {b"title": Value(0, b'"big"')}
    assert run(server.call("hall", "h", "rename")) == "hall"
    assert server.entities["hall", b"h"] == {}


def test_a_misspelt_field_is_an_error(server: FakeServer) -> None:
    with pytest.raises(ServerError, match="no field 'nmae'"):
        run(server.call("hall", "h", "misspelt"))


def test_lazy_fields(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "photo_size")) == 0
    run(server.call("hall", "h", "set_photo", "12345"))
    assert server.entities["hall", b"h"] == {b"photo": Value(1, b"12345")}
    assert run(server.call("hall", "h", "photo_size")) == 5


def test_maps_are_read_and_written_item_by_item(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "book", {"number": "b", "guest": "ann"})) == "b"
    assert run(server.call("hall", "h", "book", {"number": "a", "guest": "bob"})) == "a, b"
    with pytest.raises(ServerError, match="b is taken"):
        run(server.call("hall", "h", "book", {"number": "b", "guest": "eve"}))
    assert server.entities["hall", b"h"][b"seats/a"] == Value(0, b'{"row":1,"guest":"bob"}')
    assert run(server.call("hall", "h", "free", "b")) is True
    assert run(server.call("hall", "h", "free", "b")) is False
    for day, text in ((10, "ten"), (9, "nine")):
        rows = run(server.call("hall", "h", "note", {"day": day, "text": text}))
    assert rows == [[9, "nine"], [10, "ten"]]


def test_lists_know_their_length(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "push", [1, 2, 3])) == 3
    assert run(server.call("hall", "h", "push", list(range(4, 1200)))) == 1199
    assert run(server.call("hall", "h", "at", 1)) == 2
    assert run(server.call("hall", "h", "at", -1)) == 1199
    assert run(server.call("hall", "h", "pop")) == 1199
    assert run(server.call("hall", "h", "all")) == list(range(1, 1199))
    assert run(server.call("hall", "h", "part", {"start": 2, "stop": 5})) == [3, 4, 5]
    with pytest.raises(ServerError, match="IndexError"):
        run(server.call("hall", "h", "at", 5000))
    run(server.call("hall", "h", "clear"))
    assert run(server.call("hall", "h", "all")) == []
    assert set(server.entities["hall", b"h"]) == {b"log"}


def test_fields_by_name(server: FakeServer) -> None:
    assert run(server.call("hall", "h", "raw", {"field": "x", "value": 1})) == [None, 1, ["x"]]
    assert run(server.call("hall", "h", "raw", {"field": "x", "value": [2]})) == [1, [2], ["x"]]


# -- workflows, messages, routes ------------------------------------------------------------------


def test_a_workflow_suspends_and_goes_on(server: FakeServer) -> None:
    server.answers = {
        Type.WAIT: [Value(0, b'"yes"')],
        Type.FETCH: [Value(0, b'{"status":201,"headers":[["A","b"]],"body":"eyJvayI6MX0="}')],
    }
    assert run(server.call("trip", "t", "book", "ann")) == "token of ann yes {'ok': 1}"
    assert server.compensations == [("account", b"ann", "deposit", b"80")]
    assert server.signals == [("inv_2", "done", b'{"status":201}')]
    step = next(frame for frame in server.frames if frame.type is Type.STEP)
    assert step.payload.endswith(b'{"attempts":3}')
    assert server.policies[0] == b'{"attempts":"unlimited","first_ms":50}'
    assert any(frame.type is Type.STEP_END and b"token of ann" in frame.payload for frame in server.frames)


def test_a_wait_times_out_as_python_does(server: FakeServer) -> None:
    server.answers = {Type.WAIT: [Failure("wait-limit", "nobody came")]}
    assert run(server.call("trip", "t", "waits")) == "nobody"


def test_a_workflow_waits_for_others(server: FakeServer) -> None:
    answers = [Value(0, b'"first"'), Value(0, b"2"), Failure("aborted", "sold out"), Value(0, b"3")]
    server.answers = {Type.AWAIT: list(answers)}
    assert run(server.call("trip", "t", "family")) == ["order-17", "inv_1", "first", 2, "sold out"]
    assert (server.sent, server.sent_ids) == ([("trip", b"t", "book", b'"ann"', 0)], ["order-17"])
    asked = [frame.payload[4:] for frame in server.frames if frame.type is Type.AWAIT]
    assert asked[0] == payloads.encode_wait(2, "order-17", 2500)[4:]
    assert asked[2] == payloads.encode_wait(4, "inv_2", None)[4:]
    assert run(server.call("trip", "t", "one_result")) == 3


def test_a_transaction_waits_for_no_workflow(server: FakeServer) -> None:
    with pytest.raises(ServerError, match=r"ctx\.result is for workflows"):
        run(server.call("trip", "t", "awaits_another"))


def test_an_older_server_is_asked_for_nothing_new(server: FakeServer) -> None:
    server.version = 1
    with pytest.raises(ServerError, match=r"ctx\.send_as needs version 2 of the worker protocol"):
        run(server.call("trip", "t", "family"))
    with pytest.raises(ServerError, match=r"ctx\.result needs version 2"):
        run(server.call("trip", "t", "one_result"))
    with pytest.raises(ServerError, match=r"ctx\.call_with needs version 3"):
        run(server.call("trip", "t", "book", "ann"))


def test_no_turn_ends_while_the_code_of_a_step_runs() -> None:
    server = FakeServer(Worker([Trip]), one_by_one=True)
    server.answers = {Type.WAIT: [Value(payloads.JSON, b'"x"')]}
    assert run(server.call("trip", "t", "step_beside_a_wait")) == ["rested", "x"]
    types = [frame.type for frame in server.frames if frame.type is not Type.RESUMED]
    assert types[:5] == [Type.STEP, Type.WAIT, Type.SUSPEND, Type.STEP_END, Type.SUSPEND]


def test_a_step_that_fails_raises_its_noted_error(server: FakeServer) -> None:
    assert run(server.call("trip", "t", "failing_step")) == "function-failed"
    assert run(server.call("trip", "t", "hopeless_step")).startswith("TerminalError: the data is broken")


def test_a_workflow_that_does_something_else_is_told_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    RUNS.clear()
    worker = Worker([Account, Hall, Trip], kept_attempts=0)
    with pytest.raises(ServerError, match="not-deterministic"), caplog.at_level(logging.ERROR):
        run(FakeServer(worker).call("trip", "t", "fickle"))
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "await self.ctx.sleep(1)" in text)
    assert f"came to SLEEP at test_engine.py:{line}" in caplog.text


def test_what_waits_is_not_for_transactions(server: FakeServer) -> None:
    with pytest.raises(ServerError, match=r"ctx\.sleep is for workflows"):
        run(server.call("trip", "t", "sleeps"))


def test_messages_leave_with_the_transaction(server: FakeServer) -> None:
    first = run(server.call("trip", "t", "starts"))
    assert server.sent == [
        ("trip", b"t", "book", b'"ann"', 2500),
        ("account", b"ann", "deposit", b"5", 0),
    ]
    server.sent.clear()
    assert run(server.call("trip", "t", "starts")) == first, "random numbers are the invocation's"


def test_log_lines_and_schedules(server: FakeServer) -> None:
    run(server.call("trip", "main", "sweep", {"days": 1}))
    assert server.logs == [(2, "swept 1")]
    assert server.services["trip"]["schedules"] == [
        {"name": "sweep", "cron": "0 3 * * *", "key": "main", "handler": "sweep", "input": {"days": 1}}
    ]


def test_routes(server: FakeServer) -> None:
    answer = run(server.request("POST", "/trip/book/a%20b?q=1", {"amount": 5}))
    assert answer == (200, {"balance": 5, "q": "1"})
    assert run(server.request("GET", "/trip/text")) == (418, b"hi")
    assert run(server.request("DELETE", "/trip/nothing")) == (204, b"")
    with pytest.raises(ServerError, match="the body is not JSON"):
        run(server._run("trip", b"", "POST /book/:guest", b'{"method":"POST","path":"/","body":"eA=="}', Kind.ROUTE))


def test_a_second_kind_or_a_bad_name_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="two kinds"):

        class Twice(Service):
            @query
            @workflow
            async def x(self) -> None: ...

    with pytest.raises(TypeError, match="cannot be the name"):

        class Odd(Service, name="a/b"): ...

    with pytest.raises(TypeError, match="no __init__"):

        class Made(Service):
            def __init__(self) -> None: ...

    with pytest.raises(TypeError, match="taken by the base class"):

        class Taken(Service):
            key: str  # type: ignore[assignment]

    with pytest.raises(TypeError, match="must be an async def"):

        class Sync(Service):
            @workflow
            def x(self) -> None: ...

    class Wrong(Service):
        amount: int = "x"  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"Wrong\.amount: amount: expected an integer"):
        Worker([Wrong])


def test_handlers_are_inherited_and_named() -> None:
    class Base(Service):
        count: int = 0

        async def req(self) -> int:
            self.count += 1
            return self.count - 1

    class Left(Base, name="left_backend"):
        @transaction(name="addOne", timeout_ms=500)
        async def add_one(self) -> int:
            return await self.req() + 1

    server = FakeServer(Worker([Left]))
    assert run(server.call("left_backend", "k", "req")) == 0
    assert run(server.call("left_backend", "k", "addOne")) == 2
    assert server.services["left_backend"]["handlers"][1]["timeout_ms"] == 500


@pytest.mark.parametrize("attempts", [0, -1, "always"])
def test_a_wrong_number_of_attempts_is_refused_where_it_is_said(attempts: Any) -> None:
    with pytest.raises(ValueError, match="a number from 1 on"):
        Retry(attempts=attempts)
