"""The pytest plugin on the real server, as a user has it. Skipped where MILLRACE_BINARY names no server."""

from __future__ import annotations

import threading

import pytest
from bank import Account, Trip, services
from processes import needs_server

from millrace import Abort
from millrace.testing import Isolated, Running

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
