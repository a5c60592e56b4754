"""Workers of a test: in a thread, which is quick and easy to debug; or in a process, which can be killed."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from .._dial import Dialer
from ..service import Service

_READY_SECONDS = 20.0


class ThreadWorker:
    """A worker that dials in from a thread of the test's process."""

    def __init__(self, services: Sequence[type[Service]], url: str, app: str) -> None:
        self._services = services
        self._url = url
        self._app = app
        self._dialer: Dialer | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Starts the worker; :meth:`wait` waits until the server has it."""
        dialer = self._dialer = Dialer(self._services, self._url, self._app)
        self._thread = threading.Thread(target=self._run, args=(dialer,), name="millrace-worker", daemon=True)
        self._thread.start()

    def _run(self, dialer: Dialer) -> None:
        try:
            asyncio.run(dialer.run())
        except BaseException as error:
            self._error = error
            dialer.ready.set()

    def wait(self) -> None:
        """Waits until the server has registered the worker."""
        assert self._dialer is not None
        if not self._dialer.ready.wait(_READY_SECONDS):
            raise TimeoutError("the server has not registered the worker")
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """Ends the worker in the middle of what it does: its connection breaks, its calls are void."""
        dialer, self._dialer = self._dialer, None
        if dialer is not None:
            dialer.stop()
        if self._thread is not None:
            self._thread.join(_READY_SECONDS)
            self._thread = None

    stop = kill


class ProcessWorker:
    """A worker that dials in from a process of its own. Its services must be in a module that can be imported."""

    def __init__(self, services: Sequence[type[Service]], url: str, app: str) -> None:
        module = inspect.getmodule(services[0])
        path = getattr(module, "__file__", None)
        if path is None:
            raise ValueError("services for a process of their own are in a file")
        self._target = path
        self._url = url
        self._app = app
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._output: list[bytes] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "millrace.connect", self._target, "--url", self._url, "--app", self._app]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self._process = process
        self._ready.clear()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._output.append(line)
            if b"has registered this worker" in line:
                self._ready.set()
        process.stdout.close()
        self._ready.set()

    def log(self) -> str:
        """What the process has printed."""
        return b"".join(self._output).decode(errors="replace")

    def wait(self) -> None:
        if not self._ready.wait(_READY_SECONDS) or self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the worker did not start:\n{self.log()}")

    def kill(self) -> None:
        """Ends the process as ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait()
