"""A hostile worker harms its own services only: a neighbour's calls go on, and the server's memory stays bounded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_worker import ANSWERS, DISCOVERIES, ENDLESS, LARGE, MIB, HostileWorker, document
from processes import deploy, needs_server, uvicorn_worker

from millrace import Client
from millrace._protocol.frames import Type, encode
from millrace.testing import Node

pytestmark = [
    needs_server,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc"),
]
# Bounds that a loaded machine keeps. A server that waits for the hostile worker, or keeps what it sends, does not.
NEIGHBOUR_P99_SECONDS = 2.0
GROWTH_BYTES = 256 * MIB
_SECONDS = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A server with a neighbour, whose worker keeps its promises."""
    node, worker = Node(), uvicorn_worker("bank:app", Path(__file__).parent)
    try:
        worker.start()
        node.start()
        deploy(node, "bank", worker.url, tmp_path_factory.mktemp("bank"))
        yield node
    finally:
        worker.kill()
        node.close()


def peak_bytes(node: Node) -> int:
    """The most memory that the server has had so far."""
    assert node._process is not None
    status = Path(f"/proc/{node._process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


@contextlib.contextmanager
def calm_neighbour(node: Node) -> Iterator[None]:
    """Calls a neighbour meanwhile: each call is answered, soon, and the server keeps little."""
    before = peak_bytes(node)
    seconds: list[float] = []
    problems: list[BaseException] = []
    ends = threading.Event()

    def call() -> None:
        try:
            with Client(node.url, retries=0) as client:
                first = client.call("account", "calm", "deposit", 1)
                while not (ends.is_set() and seconds):
                    begin = time.monotonic()
                    assert client.call("account", "calm", "deposit", 1) == first + len(seconds) + 1
                    seconds.append(time.monotonic() - begin)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(_SECONDS)
    assert problems == []
    assert seconds
    assert sorted(seconds)[int(len(seconds) * 0.99)] < NEIGHBOUR_P99_SECONDS
    assert peak_bytes(node) - before < GROWTH_BYTES


@pytest.fixture(scope="module")
def hostile(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileWorker]:
    worker = HostileWorker()
    deploy(node, "hostile", worker.url, tmp_path_factory.mktemp("hostile"))
    yield worker
    worker.close()


def good_again(client: Client) -> None:
    """The same worker is asked again, once the breaker lets calls through."""
    end = time.monotonic() + _SECONDS
    while (reply := client.request("POST", "/call/hostile/k/good")).status != 200:
        assert reply.json()["code"].startswith("worker-"), reply.body
        assert time.monotonic() < end, reply.body
        time.sleep(0.02)
    assert reply.json() == "good"


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_harms_its_own_call_only(node: Node, hostile: HostileWorker, name: str) -> None:
    with calm_neighbour(node), Client(node.url, retries=0) as client:
        good_again(client)
        for _ in range(3):
            reply = client.request("POST", f"/call/hostile/k/{name}")
            # A machine with much else to do does not get to the answer by the deadline.
            if name in ENDLESS or reply.json()["code"] != "worker-timeout":
                break
            good_again(client)
        expected = ["worker-timeout"] if name in ENDLESS else ["worker-failed"]
        assert reply.json()["code"] in expected + ["worker-timeout"] * (name in LARGE), reply.body
        # Nothing of it has taken effect.
        assert client.request("GET", "/state/hostile/k").status == 404
        good_again(client)


def test_many_calls_that_never_end_take_the_hostile_workers_slots_only(node: Node, hostile: HostileWorker) -> None:
    codes: list[str] = []

    def call() -> None:
        with Client(node.url, retries=0) as client:
            codes.append(client.request("POST", f"/call/hostile/{threading.get_ident()}/silence").json()["code"])

    threads = [threading.Thread(target=call) for _ in range(64)]
    with calm_neighbour(node):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SECONDS)
    assert len(codes) == len(threads)
    assert set(codes) <= {"worker-failed", "worker-timeout", "worker-unavailable"}


@pytest.mark.parametrize("name", DISCOVERIES)
def test_a_discovery_document_is_refused(node: Node, name: str) -> None:
    worker = HostileWorker(DISCOVERIES[name])
    command = [os.environ["MILLRACE_BINARY"], "deploy", "refused", "--worker", worker.url, "--url", node.url]
    try:
        with calm_neighbour(node):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        assert done.returncode != 0
        assert done.stderr.startswith("millrace: app-refused (422): "), done.stderr
        with Client(node.url) as client:
            assert b"refused" not in client.request("GET", "/apps").body
    finally:
        worker.close()


def dialled(node: Node) -> socket.socket:
    """A connection of a worker that dials in, before its HELLO."""
    host, port = node.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=_SECONDS)
    connection.sendall(
        f"GET /workers/connect HTTP/1.1\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: millrace-worker\r\n"
        "millrace-worker-protocol: 3\r\nmillrace-app: dialled\r\n\r\n".encode()
    )
    assert connection.recv(4096).startswith(b"HTTP/1.1 101")
    return connection


def closed(connection: socket.socket) -> bool:
    """Whether the server ends the connection, whatever it says before."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65_536):
            pass
    return True


FLOODS = {
    "garbage": os.urandom(1000),
    "length": b"\xff\xff\xff\xff" + bytes(8),
    "no HELLO": encode(Type.LOG, bytes(5)),
    "no document": encode(Type.HELLO, (4).to_bytes(4, "big") + b"null"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_of_who_dials_in_end_its_connection(node: Node, name: str) -> None:
    with calm_neighbour(node), dialled(node) as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                connection.sendall(FLOODS[name])
        assert closed(connection)


AFTER_HELLO = {
    "logs of no attempt": encode(Type.LOG, b"\x01" + bytes(4), 0, 77),
    "outputs of no attempt": encode(Type.OUTPUT, b"\x00" + bytes(4), 0, 77),
    "heartbeats": encode(Type.HEARTBEAT, b""),
    "another HELLO": encode(Type.HELLO, bytes(4)),
}


@pytest.mark.parametrize("name", AFTER_HELLO)
def test_a_flood_of_who_has_dialled_in_stays_its_own(node: Node, name: str) -> None:
    said = json.dumps(document("flooding", "stream")).encode()
    flood = AFTER_HELLO[name] * 1000
    with calm_neighbour(node), dialled(node) as connection:
        connection.sendall(encode(Type.HELLO, len(said).to_bytes(4, "big") + said))
        # READY: from now on it is a worker like others.
        assert connection.recv(12)[4] == Type.READY
        # The server reads on, or hangs up. It may do either.
        with contextlib.suppress(ConnectionError):
            for _ in range(32 * MIB // len(flood)):
                connection.sendall(flood)


def test_connections_without_a_hello_end(node: Node) -> None:
    with calm_neighbour(node), contextlib.ExitStack() as kept:
        connections = [kept.enter_context(dialled(node)) for _ in range(200)]
        assert all(closed(connection) for connection in connections)


def test_unfinished_answers_hold_little_together(node: Node, tmp_path: Path) -> None:
    worker = HostileWorker.of("hoarder", timeout_ms=4_000)
    codes: list[str] = []

    def call(number: int) -> None:
        with Client(node.url, retries=0) as client:
            codes.append(client.request("POST", f"/call/hoarder/{number}/hoard").json()["code"])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(32)]
    try:
        # Each answer has 60 MiB and no end, and there are slots for all of them.
        deploy(node, "hoarder", worker.url, tmp_path)
        with calm_neighbour(node):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_SECONDS)
    finally:
        worker.close()
    assert len(codes) == len(threads)
    assert (
        {"worker-timeout", "worker-failed"} <= set(codes) <= {"worker-timeout", "worker-failed", "worker-unavailable"}
    )
