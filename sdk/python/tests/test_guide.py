"""The guide's Python: every block runs, and the first one does what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fake_server import FakeServer

from millrace import Service
from millrace._worker.worker import Worker

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "python.md"
pytestmark = pytest.mark.skipif(not GUIDE.exists(), reason="the guide is in the repository only")


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_guides_code(monkeypatch: pytest.MonkeyPatch) -> None:
    services: list[type[Service]] = []
    for number, block in enumerate(blocks()):
        module = ModuleType("bank" if number == 0 else f"guide_{number}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(block, f"{GUIDE.name} block {number}", "exec"), module.__dict__)
        services += [
            member
            for member in vars(module).values()
            if isinstance(member, type) and issubclass(member, Service) and member.__module__ == module.__name__
        ]
    server = FakeServer(Worker(services))

    async def steps() -> None:
        assert await server.call("account", "ann", "deposit", 100) == 100
        await server.call("account", "ann", "transfer", {"to": "bob", "amount": 30})
        assert await server.call("account", "bob", "show") == 30
        await server.call("hall", "h", "book", {"number": "12A", "guest": "ann"})
        assert await server.call("hall", "h", "free_seats") == []
        assert await server.call("hall", "h", "visit", 1) == 1
        assert await server.call("stock", "s", "take", "bob") == 11
        assert await server.call("pair", "p", "both", "q") == [1, 2]
        assert (await server.request("GET", "/greeter/hello/ann"))[0] == 200

    asyncio.run(steps())
    assert len(services) == 8
