"""``python -m millrace.dev bank.py``: a server and a worker, started anew when a file changes.

The worker dials in and prints each call with the time it took. Errors show the user's frames only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ._dial import Dialer, Refused
from ._load import load
from ._orphans import end_without
from ._worker.attempt import Attempt
from ._worker.worker import THREADS, told
from .client import Client
from .testing.node import Node

_LOOK_SECONDS = 0.3
# Set for the worker: the process that has started it and without which it ends.
_CHILD = "MILLRACE_DEV_WORKER"
# The process that has started this one and without which it ends: `millrace dev`.
_PARENT = "MILLRACE_DEV_PARENT"
# The app's settings, beside its file.
_SETTINGS = "millrace.toml"
_SKIPPED = {"__pycache__", ".git", ".venv", "venv", "node_modules", "target"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m millrace.dev", description=__doc__)
    parser.add_argument("target", help="a module or file with services, such as bank.py or bank:services")
    parser.add_argument("--url", help="a node that runs already; without it, one is started")
    parser.add_argument("--data", default="./data", help="the data directory of the node that is started")
    parser.add_argument("--http", default="127.0.0.1:8080", help="where the node that is started listens")
    parser.add_argument("--app", help="the app that the services are; the module's name if it is left out")
    options = parser.parse_args(arguments)
    if parent := os.environ.get(_CHILD):
        end_without(int(parent))
        return _work(options.target, options.url, options.app)
    node = None
    # As Ctrl-C does: the worker and the node have to end as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.url is None:
            os.makedirs(options.data, exist_ok=True)
            node = Node(options.data, options=(), address=options.http, outlives_us=False)
            node.start()
            print(f"the server runs at {node.url}, its data is in {options.data}", flush=True)
        return _watch(options.target, options.url or (node.url if node else ""), options.app)
    except KeyboardInterrupt:
        return 0
    except (FileNotFoundError, RuntimeError) as error:
        print(f"millrace.dev: {error}", file=sys.stderr)
        return 1
    finally:
        if node is not None:
            node.stop()


# -- the parent: starts the worker, and again when a file has changed ------------------------------


def _watch(target: str, url: str, app: str | None) -> int:
    name = target.partition(":")[0]
    folder = _folder(name)
    command = [sys.executable, "-m", "millrace.dev", target, "--url", url]
    command += ["--app", app] if app else []
    while True:
        before = _times(folder)
        worker = subprocess.Popen(command, env={**os.environ, _CHILD: str(os.getpid())})
        try:
            while _times(folder) == before:
                time.sleep(_LOOK_SECONDS)
                if _is_orphan():
                    return 0
                if (worker.poll() or 0) < 0:
                    print("the worker was killed: starting it anew", flush=True)
                    break
            else:
                print("a file has changed: starting the worker anew", flush=True)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()


def _folder(name: str) -> Path:
    return Path(name).resolve().parent if name.endswith(".py") else Path.cwd()


def _is_orphan() -> bool:
    parent = os.environ.get(_PARENT)
    return parent is not None and os.getppid() != int(parent)


def _times(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in _sources(folder)}


def _sources(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            if entry.name not in _SKIPPED and not entry.name.startswith("."):
                yield from _sources(entry)
        elif entry.suffix == ".py" or entry.name == _SETTINGS:
            yield entry


# -- the child: serves, and tells of each call -----------------------------------------------------


def _work(target: str, url: str, app: str | None) -> int:
    try:
        name, services = load(target)
        dialer = Dialer(services, url, app or name, threads=THREADS)
        dialer.worker.on_end = tell
        settings = _folder(target.partition(":")[0]) / _SETTINGS
        give = partial(_give_settings, dialer, url, app or name, settings) if settings.exists() else None
        asyncio.run(_serve(dialer, give))
    except Refused as error:
        print(f"millrace.dev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    except Exception as problem:
        # The user's file is broken. The parent waits until it is mended.
        from ._worker.failures import user_trace

        print(user_trace(problem), file=sys.stderr, flush=True)
    return 0


async def _serve(dialer: Dialer, give: Callable[[threading.Event], None] | None) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, dialer.stop)
    if give is None:
        return await dialer.run()
    ended = threading.Event()
    giving = asyncio.create_task(asyncio.to_thread(give, ended))
    try:
        await dialer.run()
    finally:
        ended.set()
        await giving


def _give_settings(dialer: Dialer, url: str, app: str, settings: Path, ended: threading.Event) -> None:
    """Gives the app its settings, once the server knows the app."""
    while not dialer.ready.wait(_LOOK_SECONDS):
        if ended.is_set():
            return
    try:
        with Client(url) as client:
            reply = client.request("PUT", f"/apps/{app}", json={"settings": settings.read_text()})
        problem = None if reply.status == 200 else reply.json().get("detail", reply.status)
    except Exception as error:
        problem = error
    if problem is not None:
        print(f"{settings}: {problem}; the settings before go on", file=sys.stderr, flush=True)


def tell(attempt: Attempt, seconds: float) -> None:
    """Prints one line for a handler that has ended, and its error's traceback."""
    failure, trace = attempt.failure or (None, "")
    result = "ok" if failure is None else f"{failure.code}: {failure.message}"
    print(f"{seconds * 1000:8.1f} ms  {told(attempt.start)}  {result}", flush=True)
    if trace:
        print(trace, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
