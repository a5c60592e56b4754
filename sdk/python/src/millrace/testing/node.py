"""A server of one's own: started, stopped, killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from .._orphans import signal_at_parents_end

BINARY_VARIABLE = "MILLRACE_BINARY"
_START_SECONDS = 20.0
_STOP_SECONDS = 20.0
_ADVANCE_SECONDS = 20.0
_IN_MEMORY = "/dev/shm"
# A log is up to 64 MiB long before it begins anew, and several servers may run at once.
_IN_MEMORY_BYTES = 2 << 30
_SERVES = re.compile(rb"serves at (http://\S+)")
# A test wants a quick start, and no power cut: what a killed process has acknowledged is kept.
_QUICK = ("--cores", "1", "--shards", "4", "--durability", "os")


def find_binary() -> str:
    """The server's program."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        return named
    found = shutil.which("millrace")
    if found is None:
        raise FileNotFoundError(f"there is no program millrace on the PATH, and {BINARY_VARIABLE} names none")
    return found


class Node:
    """One server process with a data directory. ``url`` stays the same when it is started again.

    :param outlives_us: whether it goes on when this process is killed. If not, it also ends with the thread that
        has started it.
    :param test_clock: whether :meth:`advance` can move its clock.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        binary: str | None = None,
        options: Sequence[str] = _QUICK,
        address: str = "",
        outlives_us: bool = True,
        test_clock: bool = False,
    ) -> None:
        self._binary = binary or find_binary()
        self._own_data = None if data is not None else _temporary_directory()
        self.data = Path(data if data is not None else self._own_data.name)  # type: ignore[union-attr]
        self._options = list(options)
        self._address = address
        self._before = None if outlives_us else signal_at_parents_end()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: list[bytes] = []
        # By how much its clock is ahead of the machine's, if that is one for tests.
        self._ahead_ms = 0 if test_clock else None
        self.url = ""

    def start(self) -> None:
        """Starts the server and waits until it serves."""
        if self._address:
            return self._start()
        # The server does not say which port it was given, so one is looked for; another program may take it first.
        for tries_left in (2, 1, 0):
            self._address = f"127.0.0.1:{_free_port()}"
            try:
                return self._start()
            except RuntimeError:
                if not tries_left:
                    raise

    def _start(self) -> None:
        command = [self._binary, "serve", "--data", str(self.data), "--http", self._address, *self._options]
        if self._ahead_ms is not None:
            command.append(f"--test-clock={self._ahead_ms}")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=self._before)
        self._process = process
        self._output = []
        told = threading.Event()
        threading.Thread(target=self._read, args=(process, told), daemon=True).start()
        if not told.wait(_START_SECONDS) or not self.url or process.poll() is not None:
            process.kill()
            process.wait()
            raise RuntimeError(f"the server did not start:\n{self.log()}")

    def _read(self, process: subprocess.Popen[bytes], told: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._output.append(line)
            match = _SERVES.search(line)
            if match:
                self.url = match[1].decode()
                told.set()
        process.stdout.close()
        told.set()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Moves the server's clock ahead, also for its next start. What is due then happens within a moment."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if self._ahead_ms is None:
            raise ValueError("the server has no clock for tests: Node(test_clock=True)")
        if by < timedelta(0):
            raise ValueError("a clock for tests goes ahead only")
        body = json.dumps({"advance_ms": round(by / timedelta(milliseconds=1))})
        self._ahead_ms = int(self._ask("POST", "/clock.json", body)["ahead_ms"])

    def _ask(self, method: str, path: str, body: str | None = None) -> Any:
        """One request. A client would send again what it has no answer to."""
        connection = http.client.HTTPConnection(self._address, timeout=_ADVANCE_SECONDS)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"the server's clock was not moved: {answer.decode(errors='replace')}")
        return json.loads(answer)

    def log(self) -> str:
        """What the server has printed since its last start."""
        return b"".join(self._output).decode(errors="replace")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends the server at once, as a crash does. What it has acknowledged is there after ``start``."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the server in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Ends the server and deletes the data directory, if it was made here."""
        self.kill()
        if self._own_data is not None:
            self._own_data.cleanup()


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """In memory, where there is room and nobody names a place: a new directory is synced some seventy times."""
    in_memory = None
    try:
        usage = os.statvfs(_IN_MEMORY)
        if usage.f_bavail * usage.f_frsize >= _IN_MEMORY_BYTES and os.access(_IN_MEMORY, os.W_OK):
            in_memory = _IN_MEMORY
    except OSError:
        pass  # This system has none.
    is_named = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return tempfile.TemporaryDirectory(prefix="millrace-test-", dir=None if is_named else in_memory)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
