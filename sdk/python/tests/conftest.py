"""What several of these tests start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import Runs

from millrace.testing import Node


@pytest.fixture
def node() -> Iterator[Node]:
    """A running server, without any app."""
    node = Node()
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    path = tmp_path / "runs"
    monkeypatch.setenv("MILLRACE_TEST_RUNS", str(path))
    return Runs(path)
