"""Load on the examples of examples/python, and audits that compare what was answered with what is there.

Each operation has one idempotency key and is sent until its answer is final. So every audit is exact: what was
answered took effect once, whatever was killed meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from millrace import Client, MillraceError
from millrace.client.core import Reply

#: An operation that has no final answer by then has hung.
_OPERATION_SECONDS = 300.0
_SETTLE_SECONDS = 120.0
#: Answers of a handler.
_FINAL = (200, 409)
#: Answers that say that the same request may be sent again. Every other status is a bug.
_AGAIN = (429, 502, 503, 504)


class Load:
    """One kind of load. ``step`` is one operation of one thread; ``audit`` is called when all threads have ended."""

    name = ""

    def __init__(self, client: Client, seed: int, prefix: str = "") -> None:
        #: Of the names of what this load makes, so that two of a kind do not meet.
        self.prefix = prefix
        self.client = client
        self.random = random.Random(seed)
        self.operations = 0
        self.not_final: Counter[str] = Counter()

    def prepare(self) -> None:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """Waits until nothing of this load goes on in the server."""

    def audit(self) -> None:
        raise NotImplementedError

    def post(self, path: str, body: Any) -> Reply:
        """Sends one operation until its answer is final."""
        return self._until_final("POST", path, body)

    def get(self, path: str) -> Any:
        reply = self._until_final("GET", path, None)
        assert reply.status == 200, (path, reply.status, reply.body)
        return reply.json()

    def _until_final(self, method: str, path: str, body: Any) -> Reply:
        client = self.client.with_options(idempotency_key=str(uuid.uuid4()), retries=0)
        end = time.monotonic() + _OPERATION_SECONDS
        while True:
            try:
                reply = client.request(method, path, json=body)
                if reply.status in _FINAL:
                    return reply
                seen = f"{reply.status} {reply.body[:300]!r}"
                assert reply.status in _AGAIN, f"{method} {path}: {seen}"
                self.not_final[_named(reply)] += 1
            except MillraceError as error:
                seen = repr(error)
                self.not_final[type(error).__name__] += 1
            assert time.monotonic() < end, f"{method} {path} has no final answer: {seen}"
            time.sleep(self.random.uniform(0.02, 0.1))


def _named(reply: Reply) -> str:
    try:
        return f"{reply.status} {reply.json()['code']}"
    except (ValueError, KeyError, TypeError):
        return f"{reply.status} without a code"


class Hotel(Load):
    """Reservations. Every success is one room, one seat and one order."""

    name = "hotel"
    _PLACES = 4
    _CAPACITY = 1_000_000

    def prepare(self) -> None:
        self._reserved = 0
        for kind in ("hotel", "flight"):
            for number in range(self._PLACES):
                body = {"id": f"{kind}{number}", "capacity": self._CAPACITY}
                assert self.post(f"/hotel/add_{kind}", body).status == 200

    def step(self) -> None:
        flight, hotel = [f"{kind}{self.random.randrange(self._PLACES)}" for kind in ("flight", "hotel")]
        if self.random.random() < 0.1:
            # The room is taken and given back with the transaction.
            flight = "no-such-flight"
        reply = self.post("/hotel/reserve", {"user": "ann", "flight": flight, "hotel": hotel})
        assert reply.status == 200, reply.body
        done = reply.json()[0]
        assert done == (flight != "no-such-flight"), reply.body
        self._reserved += done

    def audit(self) -> None:
        audit = self.get("/hotel/audit")
        taken = {kind: sum(self._CAPACITY - left for left in audit[kind].values()) for kind in ("hotels", "flights")}
        expected = {"hotels": self._reserved, "flights": self._reserved}
        assert (taken, audit["orders"], audit["locks"]) == (expected, self._reserved, 0)


class Transfer(Load):
    """Transactions and sagas between accounts. Each account has what the answers say."""

    name = "transfer"
    _ACCOUNTS = 5
    _OPENING = 50

    def prepare(self) -> None:
        # Sagas move what their outputs say, and are looked at when they have ended.
        self._sagas: list[tuple[str, str, str, int]] = []
        self._balances: Counter[str] = Counter()
        for number in range(self._ACCOUNTS):
            account = f"{self.prefix}account{number}"
            assert self.post("/transfer/open", {"id": account, "balance": self._OPENING}).status == 200
            self._balances[account] = self._OPENING

    def step(self) -> None:
        source, target = self.random.sample(sorted(self._balances), 2)
        amount = self.random.randrange(1, 40)
        body = {"from": source, "to": target, "amount": amount}
        if self.random.random() < 0.3:
            reply = self.post("/transfer/saga", body)
            assert reply.status == 200, reply.body
            self._sagas.append((reply.json(), source, target, amount))
            return
        reply = self.post("/transfer/transaction", body)
        if reply.status == 200:
            self._move(source, target, amount)
        else:
            assert b"insufficient funds" in reply.body, reply.body

    def _move(self, source: str, target: str, amount: int) -> None:
        self._balances[source] -= amount
        self._balances[target] += amount

    def settle(self) -> None:
        for id, *_ in self._sagas:
            self._ended(id)

    def audit(self) -> None:
        assert len({id for id, *_ in self._sagas}) == len(self._sagas)
        for id, source, target, amount in self._sagas:
            seen = self._ended(id)
            if seen["status"] == "succeeded":
                self._move(source, target, amount)
            else:
                assert (seen["status"], seen["error"]["code"]) == ("failed", "aborted"), seen
        for account, balance in self._balances.items():
            assert (account, self.get(f"/transfer/balance?id={account}")) == (account, balance)

    def _ended(self, id: str) -> dict[str, Any]:
        end = time.monotonic() + _SETTLE_SECONDS
        while True:
            seen: dict[str, Any] = self.get(f"/invocations/{id}")
            if seen["status"] in ("succeeded", "failed", "cancelled"):
                return seen
            assert time.monotonic() < end, seen
            time.sleep(0.05)


class Social(Load):
    """Posts and their fan-out. Each post is once in its author's timeline, and once in each follower's home."""

    name = "social"
    _FOLLOWERS = 3
    # One request reads 100 posts, and a timeline drops its oldest after 1,000.
    _PAGE, _POSTS_OF_AN_AUTHOR = 100, 300

    def prepare(self) -> None:
        # The author's name, and the ids of what they posted, in order.
        self._authors: list[tuple[str, list[str]]] = []
        self._new_author()

    def _new_author(self) -> None:
        author = f"{self.prefix}author{len(self._authors)}"
        names = [author, *self._followers_of(author)]
        for name in names:
            assert self.post("/social/register", {"user": name}).status == 200
        for name in names[1:]:
            assert self.post("/social/follow", {"user": name, "followee": author}).status == 200
        self._authors.append((author, []))

    def _followers_of(self, author: str) -> list[str]:
        return [f"{author}-follower{number}" for number in range(self._FOLLOWERS)]

    def step(self) -> None:
        author, posts = self._authors[-1]
        reply = self.post("/social/compose", {"user": author, "text": f"the post {len(posts)}"})
        assert reply.status == 200, reply.body
        posts.append(reply.json()["id"])
        if len(posts) == self._POSTS_OF_AN_AUTHOR:
            self._new_author()

    def settle(self) -> None:
        for author, posts in self._authors:
            for follower in self._followers_of(author):
                self._wait_for_home(follower, posts)

    def audit(self) -> None:
        for author, posts in self._authors:
            # One writer, so its own timeline is in order.
            assert self._read("timeline", author)[::-1] == posts
            for follower in self._followers_of(author):
                self._wait_for_home(follower, posts)
                edges = self.get(f"/social/edges?user={follower}")
                assert edges == {"followees": [author], "followers": []}
            assert sorted(self.get(f"/social/edges?user={author}")["followers"]) == self._followers_of(author)

    def _wait_for_home(self, follower: str, posts: list[str]) -> None:
        """Messages come soon after, each once, and in no order of which the example has a promise."""
        end = time.monotonic() + _SETTLE_SECONDS
        while len(home := self._read("home", follower)) < len(posts):
            assert time.monotonic() < end, f"{follower} has {len(home)} of {len(posts)} posts"
            time.sleep(0.05)
        assert Counter(home) == Counter(posts)

    def _read(self, timeline: str, user: str) -> Sequence[str]:
        found: list[str] = []
        while True:
            start = len(found)
            page = self.get(f"/social/{timeline}?user={user}&start={start}&stop={start + self._PAGE}")
            found += [post["id"] for post in page]
            if len(page) < self._PAGE:
                return found


KINDS: Sequence[Callable[[Client, int], Load]] = (Hotel, Social, Transfer)


class Running:
    """Threads that load until they are told to end, one for each load."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads
        self.problems: list[BaseException] = []
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(load,), daemon=True) for load in loads]

    def _run(self, load: Load) -> None:
        try:
            while not self._ends.is_set():
                load.step()
                load.operations += 1
        except BaseException as problem:
            self.problems.append(problem)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for_progress(self, count: int, seconds: float) -> None:
        """Waits until each load has had so many more operations answered. How long that takes does not matter."""
        goals = [load.operations + count for load in self.loads]
        end = time.monotonic() + seconds
        while any(load.operations < goal for load, goal in zip(self.loads, goals, strict=True)):
            assert not self.problems, self.problems
            assert time.monotonic() < end, [(load.name, load.operations, load.not_final) for load in self.loads]
            time.sleep(0.01)

    def end(self) -> None:
        """Has the threads end what they do, and raises what went wrong in them."""
        self._ends.set()
        for thread in self._threads:
            thread.join(_OPERATION_SECONDS)
            assert not thread.is_alive()
        assert not self.problems, self.problems
