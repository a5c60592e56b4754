"""``millrace dev bank.py``, as a new user runs it. Skipped where MILLRACE_BINARY names no server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.testing.node import _free_port

BINARY = os.environ.get("MILLRACE_BINARY", "")
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "python.md"
pytestmark = pytest.mark.skipif(not BINARY or not GUIDE.exists(), reason="MILLRACE_BINARY names no server")

PATIENCE_SECONDS = 20.0


# Where a transfer has taken ann's money and bob has none yet, one stays if it is told to.
STAYS = """\
        try:
            rename("stay", "reached")
            await sleep(60)
        except FileNotFoundError:
            pass
"""


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        if found := holds():
            return found
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Dev:
    """The command, on the guide's bank."""

    def __init__(self, folder: Path, environment: str = sys.prefix) -> None:
        self.folder, self.file = folder, folder / "bank.py"
        block = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        assert block is not None
        head, called, rest = block[1].partition("        await Account(to)")
        self.file.write_text(f"from asyncio import sleep\nfrom os import rename\n{head}{STAYS}{called}{rest}")
        self.log_file = folder / "log"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [BINARY, "dev", "bank.py", "--http", f"127.0.0.1:{port}", "--cores", "1", "--shards", "4"],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "VIRTUAL_ENV": environment},
            )

    def log(self) -> str:
        return self.log_file.read_text()

    def call(self, path: str, input: Any, service: str = "account") -> Any:
        body = json.dumps(input).encode()
        request = urllib.request.Request(f"{self.url}/call/{service}/{path}", body)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return json.load(response)

    def call_once(self, path: str, input: Any) -> Any:
        """Calls with a key until it is answered, as a client does while no worker is there."""
        body = json.dumps(input).encode()
        request = urllib.request.Request(f"{self.url}/call/account/{path}", body, {"Idempotency-Key": "once"})
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def serves(self) -> bool:
        return "deployed app" in self.log()

    def processes(self) -> tuple[int, int]:
        """The one that watches the file, and the worker."""
        (watcher,) = until(lambda: children(self.process.pid))
        (worker,) = until(lambda: children(watcher))
        return watcher, worker

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    dev = Dev(tmp_path)
    try:
        until(dev.serves)
        yield dev
    finally:
        dev.end()


def test_a_worker_killed_in_the_middle_of_a_transfer(dev: Dev) -> None:
    assert dev.call("ann/deposit", 100) == 100
    watcher, worker = dev.processes()
    dev.folder.joinpath("stay").touch()
    answers: list[Any] = []
    transfer = threading.Thread(
        target=lambda: answers.append(dev.call_once("ann/transfer", {"to": "bob", "amount": 30}))
    )
    transfer.start()
    until(dev.folder.joinpath("reached").exists)
    os.kill(worker, signal.SIGKILL)
    transfer.join(PATIENCE_SECONDS)
    assert answers == [None]
    assert (dev.call("ann/show", None), dev.call("bob/show", None)) == (70, 30)
    assert dev.processes()[0] == watcher
    assert dev.processes()[1] != worker
    assert "the worker was killed: starting it anew" in dev.log()
    assert re.search(r"\d+\.\d ms  account/ann/transfer  ok", dev.log())


def test_a_change_is_loaded_and_errors_show_its_lines(dev: Dev) -> None:
    text = dev.file.read_text()
    dev.file.write_text(
        text + "\n\nclass Shop(Service):\n    async def open(self) -> None:\n        raise OSError('shut')\n"
    )
    until(lambda: "a file has changed" in dev.log() and dev.log().count("deployed app") == 2)
    with pytest.raises(urllib.error.HTTPError):
        dev.call("s/open", None, "shop")
    until(lambda: "OSError: shut" in dev.log())
    assert 'bank.py", line' in dev.log()
    assert "_worker" not in dev.log().partition("Traceback")[2].partition("OSError: shut")[0]


def test_settings_beside_the_file_are_the_apps(dev: Dev) -> None:
    def status(text: str) -> int:
        try:
            dev.call("ann/deposit", text)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    assert status("more than ten bytes") != 413
    settings = dev.folder / "millrace.toml"
    settings.write_text("[limits]\ninput_bytes = 10\n")
    until(lambda: status("more than ten bytes") == 413)
    settings.write_text("[limits]\nno_such_limit = 10\n")
    until(lambda: "the settings before go on" in dev.log())
    until(lambda: status("more than ten bytes") == 413)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_processes_end_together(dev: Dev, number: signal.Signals) -> None:
    processes = dev.processes()
    dev.process.send_signal(number)
    assert dev.process.wait(PATIENCE_SECONDS) == (0 if number == signal.SIGTERM else -number)
    until(lambda: not any(is_alive(pid) for pid in processes))


def test_a_killed_watcher_leaves_no_worker_behind(dev: Dev) -> None:
    watcher, worker = dev.processes()
    os.kill(watcher, signal.SIGKILL)
    until(lambda: not is_alive(worker))
    assert dev.process.wait(PATIENCE_SECONDS) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a child with its parent")
def test_the_sdks_own_command_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    tmp_path.joinpath("echo.py").write_text("from millrace import Service\n\n\nclass Echo(Service): ...\n")
    command = [sys.executable, "-m", "millrace.dev", "echo.py", "--http", f"127.0.0.1:{_free_port()}"]
    with tmp_path.joinpath("log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        until(lambda: len(children(process.pid)) == 2)
        both = children(process.pid)
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(is_alive(pid) for pid in both))


def test_an_environment_without_the_package(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    dev = Dev(tmp_path, str(tmp_path / "empty"))
    assert dev.process.wait(PATIENCE_SECONDS) == 1
    assert "pip install millrace-sdk" in dev.log()
