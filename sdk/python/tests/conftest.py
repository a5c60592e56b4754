"""What several of these tests start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
