"""The pytest plugin: fixtures ``millrace`` and ``millrace_running``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..service import Service
from .node import find_binary
from .running import Isolated, Running


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "millrace_process: the worker runs in a process of its own, which can be killed")


@pytest.fixture(scope="module")
def millrace_services(request: pytest.FixtureRequest) -> list[type[Service]]:
    """The services under test: the list ``services`` of the test's module. Override it to say otherwise."""
    services = getattr(request.module, "services", None)
    if services is None:
        raise pytest.UsageError(f"{request.module.__name__} has no list `services`, and overrides no fixture")
    return list(services)


@pytest.fixture(scope="module")
def millrace_running(request: pytest.FixtureRequest, millrace_services: list[type[Service]]) -> Iterator[Running]:
    """A server and a worker for the tests of a module."""
    try:
        find_binary()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    process = request.node.get_closest_marker("millrace_process") is not None
    with Running(millrace_services, process=process) as running:
        yield running


@pytest.fixture
def millrace(millrace_running: Running) -> Isolated:
    """The module's server and worker, and keys that no other test uses."""
    return Isolated(millrace_running)
