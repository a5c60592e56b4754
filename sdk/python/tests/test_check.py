"""``millrace worker-check`` on both workers, and on some that break one rule each. Skipped without MILLRACE_BINARY."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from processes import hypercorn_worker

import millrace
from millrace._protocol.frames import VERSION, Frame, Type, decode_all, encode
from millrace.check import Check

BINARY = os.environ.get("MILLRACE_BINARY", "")
NODE = Path(__file__).parents[2] / "node" / "check.mjs"
SECRET = "the worker's secret"
# That of `millrace worker-check --ed25519`.
PUBLIC_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
SIGNATURE_CASES = 19

pytestmark = pytest.mark.skipif(not BINARY, reason="MILLRACE_BINARY names no server")


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    return str(file)


def checked(url: str, secret_file: str | None, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and what became of each case. Without a secret, Ed25519 signs."""
    signed = ["--ed25519"] if secret_file is None else ["--secret-file", secret_file]
    command = [BINARY, "worker-check", url, *signed, "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    return done.returncode, {outcome["case"]: outcome for outcome in json.loads(done.stdout)}


def failed(cases: dict[str, dict[str, Any]], version: int = VERSION) -> list[str]:
    """Those of a worker that speaks this version of the protocol."""

    def is_fine(outcome: dict[str, Any]) -> bool:
        if version < 4 and outcome["case"].startswith("objects/"):
            return bool(outcome["verdict"] == "skipped")
        return outcome["verdict"] == "passed" or is_no_stream(outcome)

    return [name for name, outcome in cases.items() if not is_fine(outcome)]


def is_no_stream(outcome: dict[str, Any]) -> bool:
    """Streams need HTTP/2."""
    return outcome["verdict"] == "skipped" and outcome["case"].startswith("stream/")


@pytest.mark.skipif(
    shutil.which("node") is None or not NODE.exists(), reason="there is no Node.js, or no worker for it"
)
@pytest.mark.parametrize(
    ("mode", "scheme"),
    [([], "http"), (["stream"], "http"), (["stream"], "h2c")],
    ids=["plain", "beside-streams", "streams"],
)
@pytest.mark.parametrize("kind", ["secret", "ed25519"])
def test_the_node_worker(mode: list[str], scheme: str, kind: str, secret_file: str) -> None:
    assert len(NODE.with_name("millrace.mjs").read_text().splitlines()) < 300
    known = {"MILLRACE_WORKER_SECRET": SECRET} if kind == "secret" else {"MILLRACE_WORKER_PUBLIC_KEY": PUBLIC_KEY}
    worker = subprocess.Popen(
        ["node", str(NODE), "0", *mode],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **known},
    )
    assert worker.stdout is not None
    try:
        address = worker.stdout.readline().split("://")[-1].strip()
        status, cases = checked(f"{scheme}://{address}", secret_file if kind == "secret" else None)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert (status, failed(cases)) == (0, [])
    assert any(is_no_stream(outcome) for outcome in cases.values()) == (scheme == "http")


# -- workers that break one rule each --------------------------------------------------------------

Frames = list[Frame]


def no_resumed(frames: Frames) -> Frames:
    return [frame for frame in frames if frame.type is not Type.RESUMED]


def never_terminal(frames: Frames) -> Frames:
    return [frame._replace(flags=0) if frame.type is Type.FAILURE else frame for frame in frames]


def numbered_from_zero(frames: Frames) -> Frames:
    def lower(frame: Frame) -> Frame:
        number = int.from_bytes(frame.payload[:4], "big") - 1
        return frame._replace(payload=number.to_bytes(4, "big") + frame.payload[4:])

    return [lower(frame) if frame.type is Type.CALL else frame for frame in frames]


def writes_last(frames: Frames) -> Frames:
    writes = [frame for frame in frames if frame.type in (Type.SET, Type.DELETE)]
    others = [frame for frame in frames if frame not in writes]
    return others[:-1] + writes + others[-1:]


def no_writes(frames: Frames) -> Frames:
    return [frame for frame in frames if frame.type is not Type.SET]


def no_delays(frames: Frames) -> Frames:
    def at_once(frame: Frame) -> Frame:
        return frame._replace(payload=frame.payload[:-8] + bytes(8))

    return [at_once(frame) if frame.type in (Type.SEND, Type.SLEEP) else frame for frame in frames]


def left_over(frames: Frames) -> Frames:
    return [frame._replace(payload=frame.payload + b"\0") if frame.type is Type.LOG else frame for frame in frames]


def goes_on_after_its_end(frames: Frames) -> Frames:
    return [*frames, Frame(Type.LOG, 0, 0, b"\1\0\0\0\0")]


BROKEN = [
    (no_resumed, "replay/", "replay/same-attempt"),
    (never_terminal, "turn/abort", "turn/abort"),
    (numbered_from_zero, "calls/c", "calls/call"),
    (writes_last, "calls/w", "calls/writes-first"),
    (no_writes, "fields/g", "fields/given"),
    (no_delays, "calls/send", "calls/send"),
    (no_delays, "workflow/s", "workflow/sleep"),
    (left_over, "turn/l", "turn/log"),
    (goes_on_after_its_end, "turn/one", "turn/one-turn"),
]


def broken(breaks: Callable[[Frames], Frames]) -> Any:
    app = millrace.asgi(Check, secret=SECRET)
    answer = app._worker.invoke

    async def invoke(body: bytes, attempt: str) -> bytes:
        frames = breaks(decode_all(await answer(body, attempt)))
        return b"".join([encode(frame.type, frame.payload, frame.flags, frame.stream) for frame in frames])

    app._worker.invoke = invoke  # type: ignore[method-assign]
    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL below which every worker has its name."""
    apps = {breaks.__name__: broken(breaks) for breaks, _, _ in BROKEN}
    apps |= {"right": millrace.asgi(Check, secret=SECRET), "open": millrace.asgi(Check)}
    apps["ed25519"] = millrace.asgi(Check, public_key=PUBLIC_KEY)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[scope["path"].split("/")[1]](scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    # The socket listens already: a request waits until the server runs.
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_the_python_worker(url: str, secret_file: str) -> None:
    status, cases = checked(f"{url}/right", secret_file)
    assert (status, failed(cases)) == (0, [])
    assert len(cases) >= 120


def test_a_python_worker_that_knows_the_public_key_alone(url: str) -> None:
    status, cases = checked(f"{url}/ed25519", None)
    assert (status, failed(cases)) == (0, [])
    assert sum(case.startswith("signature/") for case in cases) == SIGNATURE_CASES


@pytest.mark.parametrize(("name", "has_secret"), [("right", False), ("ed25519", True)])
def test_the_other_kind_of_signature_is_refused(name: str, has_secret: bool, url: str, secret_file: str) -> None:
    _, cases = checked(f"{url}/{name}", secret_file if has_secret else None, "--only", "signature/fitting")
    assert "401" in cases["signature/fitting"]["detail"]


@pytest.fixture(scope="module")
def http2_url() -> Iterator[str]:
    worker = hypercorn_worker("check_streams:app", Path(__file__).parent, SECRET)
    worker.start()
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(worker.url.rsplit(":", 1)[1]))).close()
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
    yield worker.url
    worker.kill()


def test_the_python_worker_over_http2(http2_url: str, secret_file: str) -> None:
    status, cases = checked(f"{http2_url}/right", secret_file)
    assert (status, failed(cases)) == (0, [])
    assert not any(is_no_stream(outcome) for outcome in cases.values())


@pytest.mark.parametrize(
    ("name", "case"), [("silent", "stream/ping"), ("unended", "stream/end"), ("patient", "stream/output")]
)
def test_a_broken_stream_is_found(name: str, case: str, http2_url: str, secret_file: str) -> None:
    status, cases = checked(f"{http2_url}/{name}", secret_file, "--only", case)
    assert status == 1
    assert cases[case]["verdict"] == "failed", cases


@pytest.mark.parametrize(("breaks", "group", "case"), BROKEN)
def test_a_broken_worker_is_found(
    breaks: Callable[[Frames], Frames], group: str, case: str, url: str, secret_file: str
) -> None:
    status, cases = checked(f"{url}/{breaks.__name__}", secret_file, "--only", group)
    assert status == 1
    assert cases[case]["verdict"] == "failed", cases
    assert cases[case]["detail"]


def test_a_worker_that_anybody_may_invoke_is_found(url: str, secret_file: str) -> None:
    status, cases = checked(f"{url}/open", secret_file, "--only", "signature/")
    assert (status, set(cases) - set(failed(cases))) == (1, {"signature/fitting"})


def told(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([BINARY, "worker-check", *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def test_the_output_for_people(url: str) -> None:
    status, listed = told("--list")
    assert (status, len(listed.splitlines()) >= 120) == (0, True)
    status, skipped = told(f"{url}/open", "--only", "signature/")
    assert (status, f"{SIGNATURE_CASES} skipped because neither a secret nor --ed25519 is given" in skipped) == (
        0,
        True,
    )
    status, nobody = told("http://127.0.0.1:9", "--only", "turn/one")
    assert (status, "turn/one-turn\n  expected: a handler" in nobody) == (1, True)
    assert told(url, "--only", "nothing/")[0] == 1
