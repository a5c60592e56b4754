"""A node that a proof starts, kills and starts again, on the same ports and the same data directory."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.parse

import s3_endpoint

# A start after `kill -9` reads the log's tail first. On a busy machine that takes seconds.
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
# Ports that the system gives to no outgoing connection, so that nobody takes them while the node is down.
PORTS = range(26000, 26999, 2)
ACCESS_KEY, SECRET_KEY = "PROOFSKEY", "proofs-secret-0000"


class Failed(AssertionError):
    """A promise that was not kept."""


def require(is_right, text):
    if not is_right:
        raise Failed(text)


def wait_until(what, condition, timeout_s=120):
    """Asks until the condition is true, and gives what it returned."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        require(time.monotonic() < deadline, f"this did not happen within {timeout_s} s: {what}")
        time.sleep(0.05)


def free_ports():
    """Two neighbouring ports where nothing listens."""
    for port in PORTS:
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            for opened, number in ((one, port), (other, port + 1)):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                opened.bind(("127.0.0.1", number))
            return port, port + 1
    raise SystemExit("no two ports are free between 26000 and 26999")


class Node:
    """One node with one S3 user. Its log goes on over restarts."""

    def __init__(self, binary, folder, flags=()):
        self.binary, self.folder = pathlib.Path(binary), pathlib.Path(folder)
        self.data = self.folder / "data"
        self.log_path = self.folder / "log"
        http_port, self.s3_port = free_ports()
        self.http = f"127.0.0.1:{http_port}"
        self.s3 = f"127.0.0.1:{self.s3_port}"
        self.flags = list(flags)
        self.process = None

    def __enter__(self):
        self.start()
        s3_endpoint.add_user(self.binary, self.http, "proofs", "proofs@example.com", ACCESS_KEY, SECRET_KEY)
        return self

    def __exit__(self, *_):
        if self.process:
            self.kill()

    def start(self):
        """Starts the node, and waits until it listens."""
        self.spawn()
        s3_endpoint.START_TIMEOUT_S = START_TIMEOUT_S
        s3_endpoint.wait_for(self.process, self.http, self.s3, self.log_path)

    def spawn(self):
        command = [self.binary, "serve", "--data", self.data, "--http", self.http, "--s3", self.s3, *self.flags]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self):
        """As an operator stops it."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOP_TIMEOUT_S)
        self.process = None
        require(status == 0, f"the node stopped with status {status}")

    def start_is_refused(self):
        """Starts a node that must not start, and gives what it says."""
        begin = self.log_path.stat().st_size
        self.spawn()
        try:
            status = self.process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"the start was not refused: {self.log(begin)[-500:]}") from None
        self.process = None
        require(status != 0, "the node ended without an error")
        return self.log(begin)

    def log(self, begin=0):
        """What the node has logged behind a place."""
        with self.log_path.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")

    def resident_kib(self, what="VmRSS"):
        """The process's resident memory, or with `VmHWM` its peak."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1])
        raise Failed("the process has no resident memory")

    def command(self, *arguments):
        """Runs `millrace s3 …` and gives the JSON that it prints."""
        command = [self.binary, "s3", *arguments, "--url", f"http://{self.http}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        require(done.returncode == 0, f"millrace s3 {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def spread(self, slices):
        """Gives the bucket so many slices."""
        self.command("bucket", "slices", "proofs", str(slices))


class Calls:
    """A connection for calls of functions."""

    def __init__(self, node):
        host, port = node.http.split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=60)

    def call(self, service, key, handler, value=None):
        """The status and the reply's JSON."""
        path = f"/call/{service}/{urllib.parse.quote(key, safe='')}/{handler}"
        self.connection.request("POST", path, json.dumps(value), {"content-type": "application/json"})
        reply = self.connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None


def write_app(folder, name, code, settings):
    """An app's folder with one service of the app's name."""
    app = pathlib.Path(folder) / name
    os.makedirs(app, exist_ok=True)
    (app / f"{name}.ts").write_text(code)
    (app / "millrace.toml").write_text(settings)
    return app
