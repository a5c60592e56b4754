"""The pytest plugin on the real server, as a user has it. Skipped where MILLRACE_BINARY names no server."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bank import Account, Trip, services
from processes import needs_server

from millrace import Abort
from millrace.client import Invocation
from millrace.testing import Isolated, Node, Running

__all__ = ["services"]  # The fixture finds them here.

pytestmark = needs_server


def test_a_transfer(millrace: Isolated) -> None:
    ann, bob = Account(millrace.key("ann")), Account(millrace.key("bob"))
    millrace.client.call(ann.deposit, 100)
    millrace.client.call(ann.transfer, bob.key, 30)
    assert millrace.client.call(bob.show) == 30
    with pytest.raises(Abort, match="insufficient funds"):
        millrace.client.call(ann.transfer, bob.key, 71)
    assert millrace.client.call(ann.plain, 5) == 5


def test_keys_are_the_tests_own(millrace: Isolated) -> None:
    assert millrace.client.call(Account(millrace.key("ann")).show) == 0
    assert millrace.key("ann") == millrace.key("ann") != millrace.key("bob")


def test_a_workflow_goes_on_after_both_sides_were_killed(millrace: Isolated) -> None:
    guest = millrace.key("eve")
    millrace.client.call(Account(guest).deposit, 100)
    trip = millrace.client.send(Trip(guest).book, guest)
    millrace.running.kill_worker()
    millrace.running.start_worker()
    millrace.running.restart_server()
    trip.signal("confirmed", "yes")
    assert trip.result(timeout=20) == f"token of {guest} yes"
    assert millrace.client.call(Account(guest).show) == 20


def test_calls_wait_for_a_worker_that_is_killed(millrace: Isolated) -> None:
    keys = [millrace.key(str(number)) for number in range(3)]
    for key in keys:
        millrace.client.call(Account(key).deposit, 100)
    problems: list[BaseException] = []

    def move() -> None:
        try:
            for step in range(20):
                millrace.client.call(Account(keys[step % 3]).transfer, keys[(step + 1) % 3], 1)
        except BaseException as problem:
            problems.append(problem)

    movers = [threading.Thread(target=move) for _ in range(3)]
    for mover in movers:
        mover.start()
    for _ in range(3):
        millrace.running.restart_worker()
    for mover in movers:
        mover.join()
    assert problems == []
    assert sum([millrace.client.call(Account(key).show) for key in keys]) == 300


def test_a_worker_in_a_process_of_its_own() -> None:
    with Running(services, process=True) as running:
        assert running.client.call(Account("ann").deposit, 5) == 5
        running.restart_worker()
        assert running.client.call(Account("ann").deposit, 5) == 10


def test_new_data_is_in_memory_unless_a_place_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    named = Node()
    assert named.data.parent == tmp_path
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    usage = shutil.disk_usage("/dev/shm") if Path("/dev/shm").exists() else None
    other = Node()
    assert (other.data.parent == Path("/dev/shm")) == (usage is not None and usage.free >= 2 << 30)
    for node in (named, other):
        node.close()
        assert not node.data.exists()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def patient_trip(millrace: Isolated, name: str) -> Invocation:
    """Waits for two days."""
    trip = millrace.client.send(Trip(millrace.key(name)).patient, 2)
    until(lambda: bool(trip.describe().get("waits_for")))
    return trip


def test_the_clock_is_moved(millrace: Isolated) -> None:
    ann, saver, client = Account(millrace.key("ann")), Account("saver"), millrace.client
    trip = patient_trip(millrace, "eve")
    client.send_after(3600, ann.deposit, 5)
    saved = client.call(saver.show)
    millrace.advance(minutes=59)
    assert client.call(ann.show) == 0
    millrace.advance(minutes=1)
    until(lambda: client.call(ann.show) == 5)
    until(lambda: client.call(saver.show) > saved)
    assert trip.status() == "running"
    millrace.advance(days=1, hours=23)
    assert trip.result(timeout=20) == "nobody confirmed"


def test_the_clock_stays_ahead_over_a_restart(millrace: Isolated) -> None:
    millrace.advance(days=3)
    trip = patient_trip(millrace, "eve")
    millrace.running.restart_server()
    millrace.advance(days=2)
    assert trip.result(timeout=20) == "nobody confirmed"


def test_an_idempotency_key_ends(millrace: Isolated) -> None:
    ann, client = Account(millrace.key("ann")), millrace.client
    once = client.with_options(idempotency_key=millrace.key("once"))
    assert [once.call(ann.deposit, 5) for _ in range(2)] == [5, 5]
    millrace.advance(hours=23)
    assert once.call(ann.deposit, 5) == 5
    millrace.advance(hours=2)
    until(lambda: once.call(ann.deposit, 5) > 5)


def test_the_clock_does_not_go_back(millrace: Isolated) -> None:
    with pytest.raises(ValueError, match="ahead only"):
        millrace.advance(minutes=-1)
    with pytest.raises(RuntimeError, match="bad-request"):
        millrace.advance(days=365 * 101)
    with pytest.raises(ValueError, match="no clock for tests"):
        Node().advance(minutes=1)
