"""``ctx.object``: objects of buckets in a handler's transaction. The real server is skipped without MILLRACE_BINARY."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, ServerError
from gallery import Page
from processes import deploy, needs_server, uvicorn_worker

from millrace import Abort, CallError, Client
from millrace._protocol.frames import Type
from millrace._protocol.payloads import Failure, Value
from millrace._types import dumps
from millrace._worker.worker import Worker
from millrace.testing import Node

KEYS = "ANNSKEY:annssecret"


def server() -> FakeServer:
    return FakeServer(Worker([Page]))


def run(server: FakeServer, handler: str, input: Any = None) -> Any:
    return asyncio.run(server.call("page", "p", handler, input))


def test_an_older_server_is_asked_for_no_objects() -> None:
    older = server()
    older.version = 3
    with pytest.raises(ServerError, match=r"ctx\.object needs version 4 of the worker protocol"):
        run(older, "read", ["photos", "a"])
    with pytest.raises(ServerError, match=r"ctx\.objects needs version 4 of the worker protocol"):
        run(older, "keys")
    assert older.frames[-1].type is Type.FAILURE
    assert Type.OBJECT not in {frame.type for frame in older.frames}


def test_a_refusal_says_why() -> None:
    fake = server()
    fake.answers = {Type.OBJECT: [Failure("object-refused", "no", b'{"code":"NoSuchBucket"}'), Failure("x", "y")]}
    assert run(fake, "reason", "nowhere") == ["object-refused", "NoSuchBucket"]
    assert run(fake, "reason", "nowhere") == ["x", None]


def test_what_a_newer_server_adds_is_ignored_and_what_is_missing_is_an_error() -> None:
    fake = server()
    described = {"etag": "e", "modified_ms": 1, "content_type": "a/b", "metadata": {}, "version": None, "new": 1}
    whole = dumps({**described, "size_bytes": 2})
    cut = dumps(described)
    packed = [Value(1, len(text).to_bytes(4, "big") + text + b"hi") for text in (whole, cut)]
    fake.answers = {Type.OBJECT: packed}
    assert run(fake, "read", ["photos", "a"]) == ["hi", "a/b", {}]
    with pytest.raises(ServerError, match="describes an object in another way"):
        run(fake, "read", ["photos", "a"])


@pytest.mark.parametrize("body", [None, 5, ["x"]])
def test_a_body_is_text_or_bytes(body: Any) -> None:
    with pytest.raises(ServerError, match="a body is a str or bytes"):
        run(server(), "put_any", body)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Store:
    """A server with buckets, one of which an app has, and S3 beside it."""

    def __init__(self, folder: Path, app: str, deployed: Callable[[Node], None]) -> None:
        self.s3 = f"http://127.0.0.1:{free_port()}"
        options = ["--cores", "1", "--shards", "4", "--durability", "os", "--s3", self.s3.removeprefix("http://")]
        self.node = Node(folder / "data", options=options)
        self.node.start()
        deployed(self.node)
        self.command("user", "add", "ann", "--access-key", "ANNSKEY", "--secret-key", "annssecret")
        for bucket in ("photos", "other"):
            assert self.ask("PUT", bucket)[0] == 200
        self.command("bucket", "app", "photos", app)

    def command(self, *arguments: str) -> None:
        subprocess.run([self.node._binary, "s3", *arguments, "--url", self.node.url], check=True, capture_output=True)

    def ask(self, method: str, path: str) -> tuple[int, str]:
        """A signed request: its status and body."""
        command = [
            "curl",
            "-s",
            "-X",
            method,
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
            "-u",
            KEYS,
            "-w",
            "\n%{http_code}",
        ]
        command += ["-H", "x-amz-content-sha256:UNSIGNED-PAYLOAD", f"{self.s3}/{path}"]
        body, _, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rpartition("\n")
        return int(status), body

    def close(self) -> None:
        self.node.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder, worker = tmp_path_factory.mktemp("objects"), uvicorn_worker("gallery:app", Path(__file__).parent)
    worker.start()
    store = Store(folder, "gallery", lambda node: deploy(node, "gallery", worker.url, folder))
    yield store
    worker.kill()
    store.close()


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with Client(store.node.url, retries=30) as client:
        yield client


real = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


@needs_server
@real
def test_an_object_and_a_field_are_written_together_or_neither(store: Store, client: Client) -> None:
    page = Page("both")
    assert client.call(page.save, "a", "hello") == ["5d41402abc4b2a76b9719d911017c592", "hello"]
    assert (client.call(page.saved), store.ask("GET", "photos/a")) == (1, (200, "hello"))
    with pytest.raises(Abort, match="no"):
        client.call(page.save, "a", "bye", True)
    assert (client.call(page.saved), store.ask("GET", "photos/a")) == (1, (200, "hello"))
    with pytest.raises(Abort):
        client.call(page.save, "never", "bye", True)
    assert store.ask("GET", "photos/never")[0] == 404
    # From one key to another, with the counts of two entities: all of it, or nothing.
    client.call(page.move, "a", "b", "twin")
    assert (client.call(page.saved), client.call(Page("twin").saved)) == (0, 1)
    assert (store.ask("GET", "photos/a")[0], store.ask("GET", "photos/b")) == (404, (200, "hello"))
    with pytest.raises(Abort, match="there is no object"):
        client.call(page.move, "a", "c", "twin")
    assert (client.call(page.saved), client.call(Page("twin").saved)) == (0, 1)
    # A crash loses none of it.
    store.node.kill()
    store.node.start()
    assert (client.call(Page("twin").saved), store.ask("GET", "photos/b")) == (1, (200, "hello"))


@needs_server
@real
def test_reads_lists_and_deletes(store: Store, client: Client) -> None:
    page = Page("reads")
    client.call(page.save, "dir/x", "1")
    client.call(page.save, "dir/y", "22")
    assert client.call(page.read, ["photos", "dir/y"]) == ["22", "text/plain", {"color": "red"}]
    assert client.call(page.read, ["photos", "none"]) is None
    assert client.call(page.size, "dir/y") == 2
    assert client.call(page.size, "none") is None
    assert client.call(page.keys, "dir/", 1) == [["dir/x"], [], "dir/x"]
    assert client.call(page.keys, "dir/", 1, "dir/x") == [["dir/y"], [], None]
    assert "dir/" in client.call(page.keys, "", 100, "", "/")[1]
    client.call(page.remove, "dir/x")
    assert client.call(page.keys, "dir/") == [["dir/y"], [], None]


@needs_server
@real
def test_what_is_refused(store: Store, client: Client) -> None:
    page = Page("refused")
    assert client.call(page.reason, "nowhere") == ["object-refused", "NoSuchBucket"]
    assert client.call(page.reason, "other") == ["object-refused", "AccessDenied"]
    client.call(page.save, "once", "1")
    with pytest.raises(CallError) as caught:
        client.call(page.once, "once")
    assert (caught.value.status, caught.value.code) == (409, "object-refused")
    with pytest.raises(CallError) as caught:
        client.call(page.put_any, "x" * (1 << 20) + "x")
    assert caught.value.code == "size-limit"
    with pytest.raises(CallError, match="content_type is at most 255 bytes"):
        client.call(page.typed, "a\r\nb: c")
    with pytest.raises(CallError) as caught:
        client.call(page.writes_in_a_query)
    assert store.ask("GET", "photos/in-a-query")[0] == 404


@needs_server
@real
def test_a_workflow_notes_what_it_read(store: Store, client: Client) -> None:
    client.call(Page("flow").save, "first", "one")
    # It begins again for each turn, and reads what it read before, though the object is another by then.
    flow = client.send(Page("flow").copies, "first", "second")
    flow.signal("go", None)
    assert flow.result(timeout=20) == ["one", True]
    assert store.ask("GET", "photos/second") == (200, "one")
    assert store.ask("GET", "photos/first") == (200, "changed")
