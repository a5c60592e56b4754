"""A server and a worker, together."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ..client import Client
from ..service import Service
from .node import Node
from .workers import ProcessWorker, ThreadWorker

_APP = "test"


class Running:
    """A server and a worker of some services. Either side can be killed and started again.

    :param process: whether the worker runs in a process of its own, which :meth:`kill_worker` kills.
    :param data: the server's data directory; a new one, which is deleted, if it is left out.
    """

    def __init__(
        self,
        services: Sequence[type[Service]],
        *,
        process: bool = False,
        data: Path | str | None = None,
        binary: str | None = None,
    ) -> None:
        self.node = Node(data, binary=binary, test_clock=True)
        self._services = list(services)
        self._process = process
        self._worker: ThreadWorker | ProcessWorker | None = None
        self._client: Client | None = None

    @property
    def url(self) -> str:
        return self.node.url

    @property
    def client(self) -> Client:
        """A client of the server, which tries again while one side is away."""
        if self._client is None:
            self._client = Client(self.url, retries=20)
        return self._client

    def start(self) -> None:
        """Starts both and waits until the services can be called."""
        try:
            self.node.start()
            self.start_worker()
        except BaseException:
            self.close()
            raise

    def start_worker(self) -> None:
        kind = ProcessWorker if self._process else ThreadWorker
        self._worker = kind(self._services, self.url, _APP)
        self._worker.start()
        self._worker.wait()

    def kill_worker(self) -> None:
        """Ends the worker in the middle of what it does."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def restart_worker(self) -> None:
        self.kill_worker()
        self.start_worker()

    def kill_server(self) -> None:
        """Ends the server as a crash does."""
        self.node.kill()

    def restart_server(self) -> None:
        """Kills the server and starts it again on the same data; the worker dials in again by itself."""
        self.node.kill()
        self.node.start()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Moves the server's clock ahead: schedules, sleeps, deadlines and the end of idempotency keys come at once.

        It never goes back, and a restart keeps it. What runs meanwhile has taken so long.
        """
        self.node.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)

    def close(self) -> None:
        self.kill_worker()
        if self._client is not None:
            self._client.close()
        self.node.close()

    def __enter__(self) -> Running:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Isolated:
    """What one test has: the server and worker of its module, and keys of its own."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._prefix = uuid.uuid4().hex[:12]

    def key(self, name: str = "") -> str:
        """A key that no other test uses; the same for the same name."""
        return f"{self._prefix}-{name}"

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Moves the server's clock ahead, for all tests of the module that come later."""
        self.running.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)

    @property
    def client(self) -> Client:
        return self.running.client

    @property
    def url(self) -> str:
        return self.running.url
