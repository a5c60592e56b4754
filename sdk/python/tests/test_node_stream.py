"""The worker in Node.js over HTTP/2: each attempt has a stream, and its handler runs once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from h2.connection import ConnectionInputs, ConnectionState, H2ConnectionStateMachine
from processes import SECRET, WorkerProcess, connections_to, deploy, free_port, needs_server
from runs import Runs, post, slow_call

from millrace import Client
from millrace._protocol import payloads
from millrace._protocol.frames import Frame, Reader, Type, encode
from millrace._protocol.payloads import Failure, Kind, Result, Start, Value
from millrace.testing import Node

FOLDER = Path(__file__).parents[2] / "node"
APP = Path(__file__).parent / "node_streams"
_SECONDS = 60.0
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not FOLDER.exists(), reason="there is no Node.js, or no worker for it"
)


def node_worker(scheme: str = "h2c", secret: str | None = SECRET, *options: str) -> WorkerProcess:
    port = free_port()
    # The handlers note their runs in a file, for which they need a module of Node.js.
    command = ["node", str(FOLDER / "worker.mjs"), str(APP), "--port", str(port), "--packages", *options]
    return WorkerProcess(command, APP, f"{scheme}://127.0.0.1:{port}", secret)


def listening(worker: WorkerProcess) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port_of(worker))).close()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.02)


def port_of(worker: WorkerProcess) -> int:
    return int(worker.url.rsplit(":", 1)[1])


# -- with the server -------------------------------------------------------------------------------


@pytest.fixture(params=["h2c", "http"])
def scheme(request: pytest.FixtureRequest) -> str:
    scheme: str = request.param
    return scheme


@pytest.fixture
def any_worker(scheme: str, runs: Runs, node: Node, tmp_path: Path) -> Iterator[WorkerProcess]:
    yield from deployed(node_worker(scheme), node, tmp_path)


@pytest.fixture
def worker(runs: Runs, node: Node, tmp_path: Path) -> Iterator[WorkerProcess]:
    yield from deployed(node_worker(), node, tmp_path)


def deployed(worker: WorkerProcess, node: Node, folder: Path) -> Iterator[WorkerProcess]:
    worker.start()
    try:
        deploy(node, "streams", worker.url, folder, secret=SECRET)
        yield worker
    finally:
        worker.kill()


@needs_server
def test_a_handler_that_waits_for_a_call_runs_once_on_a_stream(
    node: Node, any_worker: WorkerProcess, scheme: str, runs: Runs
) -> None:
    with Client(node.url) as client:
        assert post(client, "/call/account/a/deposit", 100) == 100
        assert post(client, "/call/account/a/transfer", {"to": "b", "amount": 30}) == 70
        assert post(client, "/call/account/b/show", None) == 30
        assert runs.of("transfer") == (1 if scheme == "h2c" else 2)
        refused = client.request("POST", "/call/account/a/transfer", json={"to": "b", "amount": 1_000})
        assert (refused.status, refused.json()["detail"]) == (409, "insufficient funds")
        # Of an entity that is too large to come along.
        assert post(client, "/call/account/a/write", 60) is None
        assert post(client, "/call/account/a/read", None) == 60
        assert scheme == "http" or runs.of("read") == 1
        sent = client.request("POST", "/send/flow/f/pay", json="w").json()
        assert client.invocation(sent["id"]).result(timeout=_SECONDS) == 3


@needs_server
def test_large_results_that_come_together_are_one_turn(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    with Client(node.url) as client:
        keys = [f"k{number}" for number in range(5)]
        for times in range(1, 4):
            got = post(client, "/call/account/a/longs", {"keys": keys, "length": 3_000_000})
            assert got == [3_000_000] * 5
            assert runs.of("longs") == times


@needs_server
def test_a_worker_that_waits_for_long_is_heard_and_one_that_is_blocked_is_given_up(
    node: Node, worker: WorkerProcess, runs: Runs
) -> None:
    with Client(node.url, retries=0) as client:
        assert post(client, "/call/account/a/slow", {"seconds": 2.5, "then": 1}) == 1
        assert runs.of("slow") == 1
        runs.block(True)
        # Nothing was sent of the answer, so only the deadline counts.
        assert post(client, "/call/account/a/blocks", {"after": 0.0, "seconds": 2.5}) is None
        assert runs.of("blocks") == 1
        # The answer has begun, and more than a second of silence follows.
        thread = threading.Thread(target=post, args=(client, "/call/account/a/blocks", {"after": 0.5, "seconds": 2.5}))
        thread.start()
        runs.until("blocks", 2)
        time.sleep(0.7)
        runs.block(False)
        thread.join(_SECONDS)
        assert runs.of("blocks") == 3, "the first attempt was void"


@needs_server
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_worker_that_is_lost_in_the_middle_has_done_nothing(
    how: str, node: Node, worker: WorkerProcess, runs: Runs
) -> None:
    thread, answers = slow_call(node, 1.5)
    runs.until("slow", 1)
    if how == "killed":
        worker.kill()
        worker.start()
    else:
        time.sleep(0.4)  # The answer has begun.
        os.kill(worker.id, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(worker.id, signal.SIGCONT)
    thread.join(_SECONDS)
    assert answers == [5]
    assert runs.of("slow") == 2, "the first attempt was void"


@needs_server
def test_a_server_that_is_lost_in_the_middle_leaves_the_worker_whole(
    node: Node, worker: WorkerProcess, runs: Runs
) -> None:
    with Client(node.url, retries=0) as client:
        threads = [threading.Thread(target=lost_call, args=(node, number)) for number in range(20)]
        for thread in threads:
            thread.start()
        runs.until("slow", 20)
        node.kill()
        node.start()
        for thread in threads:
            thread.join(_SECONDS)
        assert post(client, "/call/account/a/slow", {"seconds": 0.5, "then": 1}) == 1
        assert post(client, "/call/account/0/show", None) == 0


def lost_call(node: Node, number: int) -> None:
    # Whatever it is told, it has no effect.
    with Client(node.url, retries=0) as client, contextlib.suppress(Exception):
        post(client, f"/call/account/{number}/slow", {"seconds": 1.5, "then": 1})


@needs_server
def test_a_worker_that_is_told_to_end_ends_its_calls_first(node: Node, worker: WorkerProcess, runs: Runs) -> None:
    with Client(node.url, retries=0) as client:
        post(client, "/call/account/b/deposit", 1)
        thread, answers = slow_call(node, 1.5)
        runs.until("slow", 1)
        os.kill(worker.id, signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port_of(worker)))
        later = client.request("POST", "/call/account/b/deposit", json=1)
        assert (later.status, later.json()["code"]) == (503, "worker-unavailable")
        thread.join(_SECONDS)
        assert (answers, runs.of("slow")) == ([5], 1)
        assert worker.wait(2.0) == 0, "it waits for nothing else"
    worker.start()
    with Client(node.url) as client:
        assert post(client, "/call/account/b/deposit", 1) == 2


@needs_server
def test_a_worker_that_is_told_to_end_ends_its_steps_first(node: Node, any_worker: WorkerProcess, runs: Runs) -> None:
    with Client(node.url, retries=0) as client:
        sent = client.request("POST", "/send/flow/f/rest", json=1.5).json()
        runs.until("rest", 1)
        os.kill(any_worker.id, signal.SIGTERM)
        assert any_worker.wait(4.0) == 0
        any_worker.start()
        assert client.invocation(sent["id"]).result(timeout=_SECONDS) == "rested"
        assert runs.of("rest") == 1


@needs_server
def test_streams_leave_nothing_behind(node: Node, worker: WorkerProcess) -> None:
    with Client(node.url) as client:
        # More than a client may reset at once.
        for number in range(400):
            refused = client.request("POST", f"/call/account/{number}/transfer", json={"to": "b", "amount": 1})
            assert refused.status == 409
            post(client, f"/call/account/{number}/deposit", 2)
            post(client, f"/call/account/{number}/transfer", {"to": "b", "amount": 1})
    assert connections_to(worker) > 0
    end = time.monotonic() + _SECONDS
    # The server closes a connection that has had no stream for four seconds.
    while connections_to(worker):
        assert time.monotonic() < end, "a stream is still held"
        time.sleep(0.2)


@needs_server
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate")
def test_streams_over_tls(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    made += ["-subj", "/CN=worker", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    # Whom the server trusts.
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    node, worker = Node(), node_worker("https", SECRET, "--cert", str(cert), "--key", str(key))
    try:
        node.start()
        worker.start()
        deploy(node, "streams", worker.url, tmp_path, secret=SECRET)
        with Client(node.url) as client:
            assert post(client, "/call/account/a/deposit", 100) == 100
            assert post(client, "/call/account/a/transfer", {"to": "b", "amount": 30}) == 70
            assert runs.of("transfer") == 1
            thread, answers = slow_call(node, 1.0)
            runs.until("slow", 1)
            assert worker.stop() == 0, "it ends its calls first"
            thread.join(_SECONDS)
            assert answers == [75]
    finally:
        worker.kill()
        node.close()


# -- frame by frame --------------------------------------------------------------------------------


class Peer:
    """The server's end of one HTTP/2 connection, which does what a test says."""

    def __init__(self, port: int, window: int = 65_535) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.h2.initiate_connection()
        self.flush()
        self._readers: dict[int, Reader] = {}
        #: By stream: its status, its frames, and whether it has ended.
        self.status: dict[int, int] = {}
        self.frames: dict[int, list[Frame]] = {}
        self.ended: set[int] = set()
        self.goes_away = False

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def open(self, start: bytes, attempt: bytes, expects: int | None = 200) -> int:
        stream = self.h2.get_next_available_stream_id()
        headers = {":method": "POST", ":path": "/invoke", ":scheme": "http", ":authority": "worker"}
        headers |= {
            "millrace-worker-mode": "stream",
            "millrace-worker-protocol": "3",
            "millrace-attempt": attempt.hex(),
        }
        self.h2.send_headers(stream, list(headers.items()))
        self._readers[stream], self.frames[stream] = Reader(), []
        self.send(stream, start)
        return stream

    def send(self, stream: int, data: bytes, ends: bool = False) -> None:
        for at in range(0, max(len(data), 1), 16_384):
            part = data[at : at + 16_384]
            self.h2.send_data(stream, part, ends and at + 16_384 >= len(data))
            self.flush()

    def until(self, done: Callable[[], bool], seconds: float = _SECONDS, fails: bool = True) -> None:
        """Reads until something has come."""
        end = time.monotonic() + seconds
        while not done():
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self.socket.recv(65_536)
            except TimeoutError:
                assert not fails, (self.status, self.frames)
                return
            for event in self.h2.receive_data(data):
                self._take(event)
            self.flush()
            assert data or not fails, "the connection has ended"
            if not data:
                return

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            self.status[event.stream_id] = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if self.status[event.stream_id] == 200:
                self.frames[event.stream_id] += self._readers[event.stream_id].feed(event.data)
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goes_away = True

    def types(self, stream: int) -> list[Type]:
        """What has come, but for heartbeats."""
        return [frame.type for frame in self.frames[stream] if frame.type is not Type.HEARTBEAT]

    def hears(self, seconds: float) -> None:
        self.until(lambda: False, seconds, fails=False)


def start_of(handler: str, input: str, attempt: bytes = b"a" * 16) -> bytes:
    start = Start(
        attempt=attempt, kind=Kind.TRANSACTION, deadline_ms=10_000, seen=0, service="account", handler=handler,
        key=b"ann", invocation="", now_ms=1, seed=b"s" * 16, input=input.encode(), fields=(), whole=True,
    )  # fmt: skip
    payload, flags = payloads.encode_start(start)
    return encode(Type.START, payload, flags)


def result(operation: int, text: str) -> bytes:
    return encode(Type.RESULT, payloads.encode_result(Result(operation, Value(0, text.encode()))))


@pytest.fixture
def port(runs: Runs) -> Iterator[int]:
    worker = node_worker(secret=None)
    worker.start()
    try:
        listening(worker)
        yield port_of(worker)
    finally:
        worker.kill()


LONGS = '{"keys":["b","c"],"length":1}'


def test_results_of_which_a_part_is_missing_begin_no_turn(port: int) -> None:
    peer = Peer(port)
    stream = peer.open(start_of("longs", LONGS), b"a" * 16)
    peer.until(lambda: Type.SUSPEND in peer.types(stream))
    assert peer.types(stream) == [Type.CALL, Type.CALL, Type.SUSPEND]
    both = result(1, '"x"') + result(2, '"yy"')
    peer.send(stream, both[:-3])
    peer.hears(0.5)
    assert peer.types(stream) == [Type.CALL, Type.CALL, Type.SUSPEND], "the second result is on its way"
    assert len(peer.frames[stream]) > 3, "it is heard meanwhile"
    peer.send(stream, both[-3:])
    peer.until(lambda: Type.OUTPUT in peer.types(stream))
    assert peer.types(stream) == [Type.CALL, Type.CALL, Type.SUSPEND, Type.OUTPUT]
    assert peer.frames[stream][-1].payload.endswith(b"[1,2]")
    peer.send(stream, b"", ends=True)
    peer.until(lambda: stream in peer.ended)


def test_a_worker_is_heard_while_a_result_is_on_its_way(port: int) -> None:
    peer = Peer(port)
    stream = peer.open(start_of("transfer", '{"to":"b","amount":0}'), b"a" * 16)
    peer.until(lambda: Type.SUSPEND in peer.types(stream))
    came, whole = len(peer.frames[stream]), result(1, '"' + "x" * 1_000 + '"')
    peer.hears(0.5)
    assert len(peer.frames[stream]) == came, "it waits, and has not the turn"
    peer.send(stream, whole[:500])
    peer.hears(0.7)
    assert len(peer.frames[stream]) > came + 1
    assert peer.types(stream)[-1] is Type.SUSPEND
    peer.send(stream, whole[500:])
    peer.until(lambda: Type.OUTPUT in peer.types(stream))


def test_nothing_piles_up_where_nothing_is_read(port: int) -> None:
    peer = Peer(port, window=0)
    stream = peer.open(start_of("slow", '{"seconds":1.5,"then":1}'), b"a" * 16)
    peer.until(lambda: stream in peer.status)
    peer.hears(2.0)
    for _ in range(5):
        peer.send(stream, encode(Type.PING, b""))
    peer.hears(0.2)
    assert peer.frames[stream] == []
    peer.h2.increment_flow_control_window(100_000, stream)
    peer.flush()
    peer.until(lambda: Type.OUTPUT in peer.types(stream))
    assert len(peer.frames[stream]) == 3, "one heartbeat waited, and the turn"


def test_a_stream_that_is_cut_ends_no_other(port: int) -> None:
    peer = Peer(port)
    attempts = [bytes([number]) * 16 for number in range(3)]
    cut, ended, kept = [peer.open(start_of("longs", LONGS, attempt), attempt) for attempt in attempts]
    peer.until(lambda: all(Type.SUSPEND in peer.types(stream) for stream in (cut, ended, kept)))
    peer.h2.reset_stream(cut)
    peer.send(ended, result(1, '"x"')[:-1], ends=True)
    peer.until(lambda: ended in peer.ended)
    assert peer.types(ended) == [Type.CALL, Type.CALL, Type.SUSPEND], "it ends without OUTPUT"
    peer.send(kept, result(1, '"x"') + result(2, '"yy"'))
    peer.until(lambda: Type.OUTPUT in peer.types(kept))


@pytest.mark.parametrize(
    "bad", [b"\xff" * 12, encode(Type.RESULT, b"x"), encode(Type.START, b""), b"\0\x90\0\0" + bytes(8)]
)
def test_bytes_that_are_no_frames_end_the_attempt(bad: bytes, port: int) -> None:
    peer = Peer(port)
    stream = peer.open(start_of("longs", LONGS), b"a" * 16)
    peer.until(lambda: Type.SUSPEND in peer.types(stream))
    peer.send(stream, bad)
    peer.until(lambda: stream in peer.ended)
    assert peer.types(stream)[-1] is Type.SUSPEND
    refused = peer.open(bad, b"a" * 16)
    peer.until(lambda: refused in peer.ended)
    assert peer.status[refused] == 400
    good = peer.open(start_of("deposit", "5"), b"a" * 16)
    peer.until(lambda: Type.OUTPUT in peer.types(good))


@pytest.mark.parametrize("how", ["number", "cycle", "long"])
def test_an_error_of_any_form_is_told_and_ends_no_worker(how: str, port: int) -> None:
    peer = Peer(port)
    stream = peer.open(start_of("fails", f'"{how}"'), b"a" * 16)
    peer.until(lambda: Type.FAILURE in peer.types(stream))
    assert b"function-failed" in peer.frames[stream][-1].payload or how == "cycle"
    good = peer.open(start_of("deposit", "5"), b"a" * 16)
    peer.until(lambda: Type.OUTPUT in peer.types(good))


def test_a_call_that_fails_before_it_is_awaited_ends_no_worker(port: int) -> None:
    peer = Peer(port)
    stream = peer.open(start_of("late", "null"), b"a" * 16)
    peer.until(lambda: Type.SUSPEND in peer.types(stream))
    peer.send(stream, encode(Type.RESULT, payloads.encode_result(Result(2, Failure("unknown-key", "nobody")))))
    peer.until(lambda: peer.types(stream).count(Type.SUSPEND) == 2)
    peer.send(stream, result(1, "1"))
    peer.until(lambda: Type.FAILURE in peer.types(stream))
    assert b"nobody" in peer.frames[stream][-1].payload


def test_a_stream_that_is_reset_as_it_begins_ends_no_worker(port: int) -> None:
    peer = Peer(port)
    stream = peer.h2.get_next_available_stream_id()
    headers = {":method": "POST", ":path": "/invoke", ":scheme": "http", ":authority": "worker"}
    peer.h2.send_headers(stream, list((headers | {"millrace-worker-mode": "stream"}).items()))
    peer.h2.reset_stream(stream)
    # Both are in one packet.
    peer.flush()
    good = peer.open(start_of("deposit", "5"), b"a" * 16)
    peer.until(lambda: Type.OUTPUT in peer.types(good))


def test_what_follows_a_refusal_takes_no_memory(runs: Runs) -> None:
    worker = node_worker(secret=SECRET)
    worker.start()
    try:
        listening(worker)
        peer = Peer(port_of(worker))
        stream = peer.open(start_of("deposit", "5"), b"a" * 16)
        peer.until(lambda: stream in peer.ended)
        assert peer.status[stream] == 401
    finally:
        worker.kill()


def test_a_worker_that_ends_says_goaway(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    # This library takes GOAWAY for the end of the connection.
    goes_on = (ConnectionState.CLIENT_OPEN, ConnectionInputs.RECV_GOAWAY)
    monkeypatch.setitem(H2ConnectionStateMachine._transitions, goes_on, (None, ConnectionState.CLIENT_OPEN))
    worker = node_worker(secret=None)
    worker.start()
    try:
        listening(worker)
        peer, idle = Peer(port_of(worker)), Peer(port_of(worker))
        stream = peer.open(start_of("slow", '{"seconds":1.0,"then":1}'), b"a" * 16)
        runs.until("slow", 1)
        os.kill(worker.id, signal.SIGTERM)
        idle.until(lambda: idle.goes_away)
        peer.until(lambda: peer.goes_away)
        peer.until(lambda: Type.OUTPUT in peer.types(stream))
        peer.send(stream, b"", ends=True)
        peer.until(lambda: stream in peer.ended)
        assert worker.wait(2.0) == 0
    finally:
        worker.kill()
