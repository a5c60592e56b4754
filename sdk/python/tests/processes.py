"""Real processes for tests: workers that can be killed, and their deployment at a server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from millrace.testing import Node

SECRET = "known to both ends"
EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
needs_server = pytest.mark.skipif(not os.environ.get("MILLRACE_BINARY"), reason="MILLRACE_BINARY names no server")
needs_examples = pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are in the repository only")
_DEPLOY_SECONDS = 60.0
_STOP_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class WorkerProcess:
    """A process that is killed and started again with the same command, so it keeps its port, if it has one."""

    def __init__(self, command: Sequence[str], folder: Path, url: str = "", secret: str | None = None) -> None:
        self.url = url
        self._command = [*command]
        self._folder = folder
        # Both ends are on this machine, so a worker may go without a secret.
        self._environment = {**os.environ, **({"MILLRACE_WORKER_SECRET": secret} if secret else {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=self._folder, env=self._environment)

    @property
    def id(self) -> int:
        """The process's id, while it runs."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """Has it end in order, and gives its exit status."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        return process.wait(_STOP_SECONDS)

    def wait(self, seconds: float) -> int:
        """The exit status of a process that has been told to end."""
        assert self._process is not None
        status = self._process.wait(seconds)
        self._process = None
        return status

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()


def uvicorn_worker(app: str, folder: Path, secret: str | None = None) -> WorkerProcess:
    """A worker of ``module:app`` that the server dials."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    return WorkerProcess(command, folder, f"http://127.0.0.1:{port}", secret)


def gunicorn_worker(app: str, folder: Path, processes: int, secret: str | None = None) -> WorkerProcess:
    """As uvicorn_worker, with several processes behind one URL."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", app, "--worker-class", "uvicorn_worker.UvicornWorker"]
    command += ["--workers", str(processes), "--bind", f"127.0.0.1:{port}", "--log-level", "warning"]
    return WorkerProcess(command, folder, f"http://127.0.0.1:{port}", secret)


def hypercorn_worker(app: str, folder: Path, secret: str | None = None) -> WorkerProcess:
    """As uvicorn_worker, over HTTP/2 without TLS."""
    port = free_port()
    command = [sys.executable, "-m", "hypercorn", app, "--bind", f"127.0.0.1:{port}", "--log-level", "warning"]
    # In this process and not in a child, which would outlive it.
    command += ["--workers", "0"]
    return WorkerProcess(command, folder, f"h2c://127.0.0.1:{port}", secret)


def dialing_worker(services: str, folder: Path, url: str, app: str) -> WorkerProcess:
    """A worker of ``module:services`` that dials the server at this URL."""
    command = [sys.executable, "-m", "millrace.connect", services, "--url", url, "--app", app]
    return WorkerProcess(command, folder)


def connections_to(worker: WorkerProcess) -> int:
    """How many connections the worker's port has, of those that are open."""
    port = f":{int(worker.url.rsplit(':', 1)[1]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for row in rows if row[1].endswith(port) and row[3] == "01")


def deploy(
    node: Node,
    app: str,
    worker_url: str,
    folder: Path,
    *,
    secret: str | None = None,
    signature: str | None = None,
    settings: str = "",
) -> None:
    """Deploys a worker, once it serves."""
    command = [os.environ["MILLRACE_BINARY"], "deploy", app, "--worker", worker_url, "--url", node.url]
    if secret is not None:
        path = folder / "secret"
        path.write_text(secret)
        command += ["--worker-secret", str(path)]
    if signature is not None:
        command += ["--worker-signature", signature]
    if settings:
        path = folder / "settings.toml"
        path.write_text(settings)
        command += ["--settings", str(path)]
    end = time.monotonic() + _DEPLOY_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < end, done.stderr
        time.sleep(0.05)
