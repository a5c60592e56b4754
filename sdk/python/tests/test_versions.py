"""Replacing a worker's URL: what began before goes on where it began, and the list of versions says when it ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import WorkerProcess, deploy, needs_server, uvicorn_worker
from versioned import Order

from millrace import Client
from millrace.testing import Node

pytestmark = needs_server


def worker(version: str) -> WorkerProcess:
    worker = uvicorn_worker("versioned:app", Path(__file__).parent)
    worker._environment["TEST_VERSION"] = version
    worker.start()
    return worker


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    node.start()
    yield node
    node.close()


def until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def versions(client: Client) -> dict[str, dict[str, Any]]:
    """The versions by their workers' URL, the deployed one first."""
    (app,) = client.request("GET", "/apps?app=shop").json()
    return {version["worker_url"]: version for version in app["versions"]}


def shown(node: Node) -> list[str]:
    """What the command prints of each version."""
    command = [os.environ["MILLRACE_BINARY"], "apps", "versions", "shop", "--url", node.url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[1:]


def test_what_began_at_the_old_url_ends_there_and_the_list_says_when(node: Node, tmp_path: Path) -> None:
    old, new = worker("old"), worker("new")
    try:
        with Client(node.url, retries=30) as client:
            deploy(node, "shop", old.url, tmp_path)
            flow = client.send(Order("o").fulfil)
            until("it has begun", lambda: versions(client)[old.url]["workflows"] == 1)
            deploy(node, "shop", new.url, tmp_path)
            assert client.call(Order("o").version) == "new"
            listed = versions(client)
            assert list(listed) == [new.url, old.url]
            assert [(one["is_deployed"], one["workflows"]) for one in listed.values()] == [(True, 0), (False, 1)]
            new_line, old_line = shown(node)
            assert "takes calls" in new_line
            assert old_line.endswith("replaced")
            # A restart forgets nothing of it.
            node.kill()
            node.start()
            until("it is there again", lambda: versions(client).get(old.url, {}).get("workflows") == 1)
            flow.signal("paid", None)
            assert flow.result(timeout=20) == ["old", "old"]
            until("nothing is left", lambda: versions(client).get(old.url, {"workflows": 0})["workflows"] == 0)
            # It may have been forgotten by now, which says the same.
            assert all(
                "takes calls" in line or line.endswith("nothing runs in it at this node") for line in shown(node)
            )
            old.kill()
            assert client.call(Order("o").version) == "new"
            until("it is forgotten", lambda: list(versions(client)) == [new.url])
    finally:
        old.kill()
        new.kill()


def test_an_app_that_was_removed_is_listed_while_something_runs_in_it(node: Node, tmp_path: Path) -> None:
    only = worker("only")
    try:
        with Client(node.url, retries=30) as client:
            deploy(node, "shop", only.url, tmp_path)
            flow = client.send(Order("o").fulfil)
            until("it has begun", lambda: versions(client)[only.url]["workflows"] == 1)
            assert client.request("DELETE", "/apps/shop").status == 204
            assert client.request("GET", "/apps").json() == []
            assert [one["is_deployed"] for one in versions(client).values()] == [False]
            flow.signal("paid", None)
            assert flow.result(timeout=20) == ["only", "only"]
    finally:
        only.kill()
    with Client(node.url) as client:
        unknown = client.request("GET", "/apps?app=nobodys")
        assert (unknown.status, unknown.json()["code"]) == (404, "unknown-app")
