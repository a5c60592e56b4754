"""A server of one's own: started, stopped, killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from .._orphans import signal_at_parents_end

BINARY_VARIABLE = "MILLRACE_BINARY"
_START_SECONDS = 20.0
_STOP_SECONDS = 20.0
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
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        binary: str | None = None,
        options: Sequence[str] = _QUICK,
        address: str = "",
        outlives_us: bool = True,
    ) -> None:
        self._binary = binary or find_binary()
        self._own_data = None if data is not None else tempfile.TemporaryDirectory(prefix="millrace-test-")
        self.data = Path(data if data is not None else self._own_data.name)  # type: ignore[union-attr]
        self._options = list(options)
        self._address = address
        self._before = None if outlives_us else signal_at_parents_end()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: list[bytes] = []
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
