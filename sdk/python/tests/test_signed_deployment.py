"""A deployment whose requests the server signs with its own key. Skipped without MILLRACE_BINARY."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import EXAMPLES, WorkerProcess, deploy, free_port, needs_examples, needs_server

from millrace import Client
from millrace.testing import Node

pytestmark = [needs_server, needs_examples]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    node.start()
    yield node
    node.stop()


def key_of(node: Node, app: str) -> str:
    command = [os.environ["MILLRACE_BINARY"], "apps", "worker-key", app, "--url", node.url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def worker_with(monkeypatch: pytest.MonkeyPatch, public_key: str, server: str) -> WorkerProcess:
    monkeypatch.setenv("MILLRACE_WORKER_PUBLIC_KEY", public_key)
    port, quiet = free_port(), ["--log-level", "warning"]
    if server == "uvicorn":
        command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), *quiet]
        return WorkerProcess(command, EXAMPLES, f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "hypercorn", "app:app", "--bind", f"127.0.0.1:{port}", "--workers", "0", *quiet]
    return WorkerProcess(command, EXAMPLES, f"h2c://127.0.0.1:{port}")


@pytest.mark.parametrize("server", ["uvicorn", "hypercorn"])
def test_a_worker_needs_the_public_key_alone(
    server: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the app is there, and the same after a restart.
    key = key_of(node, "python")
    assert len(bytes.fromhex(key)) == 32
    assert key != key_of(node, "other")
    worker = worker_with(monkeypatch, key, server)
    worker.start()
    try:
        deploy(node, "python", worker.url, tmp_path, signature="ed25519")
        with Client(node.url) as client:
            assert client.request("POST", "/call/single/one/req").status == 200
        node.stop()
        node.start()
        assert key_of(node, "python") == key
        with Client(node.url) as client:
            assert client.request("POST", "/call/single/one/req").status == 200
    finally:
        worker.kill()


def test_a_worker_of_another_key_is_not_deployed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_with(monkeypatch, key_of(node, "other"), "uvicorn")
    worker.start()
    try:
        command = [os.environ["MILLRACE_BINARY"], "deploy", "python", "--worker", worker.url, "--url", node.url]
        for signing, told in (
            ([], "has no signature"),
            (["--worker-signature", "ed25519"], "the public key of another app"),
            (["--worker-signature", "rsa"], "invalid value"),
        ):
            while True:
                done = subprocess.run([*command, *signing], capture_output=True, text=True, check=False)
                if "Connection refused" not in done.stderr:
                    break
            assert done.returncode != 0
            assert told in done.stderr
    finally:
        worker.kill()
