"""The S3 server that a program of this folder or of ../conformance talks to.

It is either the built server, started here with an empty data folder and users of its own, or any other server, given by its
URL and a file of users. The file is a JSON list of objects with `id`, `display_name`, `email`, `access_key` and
`secret_key`. It knows nothing of what the callers test.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30

# Fixed keys: a log line of a failed run can then be read beside another run's. The server ends with the run.
USERS = [
    ("main", "main@example.com", "MAINAAAAAAAAAAAAAAAA", "main-secret-00000000000000000000000000000"),
    ("alt", "alt@example.com", "ALTAAAAAAAAAAAAAAAAA", "alt-secret-000000000000000000000000000000"),
    ("tenant", "tenant@example.com", "TENANTAAAAAAAAAAAAAA", "tenant-secret-000000000000000000000000000"),
]


class Endpoint:
    """A server's URL and its users, the main one first."""

    def __init__(self, url, users, admin=None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SystemExit(f"{url!r} must look like http://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.is_secure = parts.scheme == "https"
        self.users = users
        # Where a server that was started here is administered.
        self.admin = admin


def add_arguments(parser):
    """The options that choose the server."""
    parser.add_argument("--binary", help="the built server; target/release/millrace without it")
    parser.add_argument("--endpoint", metavar="URL", help="test the server at this URL instead of starting one")
    parser.add_argument("--users", metavar="FILE", help="the users of --endpoint, as JSON")
    parser.add_argument("--serve-flag", action="append", default=[], metavar="FLAG", help="a further flag of `millrace serve`")


@contextlib.contextmanager
def endpoint(arguments):
    """The server that the options choose. A server started here ends, and its data is deleted, when the block ends."""
    if arguments.endpoint:
        if not arguments.users:
            raise SystemExit("--endpoint needs --users FILE")
        yield Endpoint(arguments.endpoint, json.loads(pathlib.Path(arguments.users).read_text()))
        return
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    binary = pathlib.Path(arguments.binary or target / "release/millrace")
    if not binary.is_file():
        raise SystemExit(f"{binary} is missing; run make build")
    with tempfile.TemporaryDirectory(prefix="millrace-s3-") as folder:
        log_path = pathlib.Path(folder, "log")
        with log_path.open("wb") as log:
            http, s3 = free_address(), free_address()
            command = [binary, "serve", "--data", pathlib.Path(folder, "data"), "--http", http, "--s3", s3]
            server = subprocess.Popen([*command, *arguments.serve_flag], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                wait_for(server, http, s3, log_path)
                yield Endpoint(f"http://{s3}", [add_user(binary, http, *user) for user in USERS], f"http://{http}")
            finally:
                server.terminate()
                try:
                    server.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()


def add_user(binary, http, name, email, access_key, secret_key):
    """Makes a user as an operator does."""
    keys = ["--access-key", access_key, "--secret-key", secret_key]
    command = [binary, "s3", "user", "add", name, "--email", email, *keys, "--url", f"http://{http}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    if done.returncode != 0:
        raise SystemExit(f"`millrace s3 user add {name}` failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def free_address():
    """An address of this machine where nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def wait_for(server, http, s3, log_path):
    """Waits until the node takes requests and its S3 listener accepts connections.

    The HTTP listener accepts connections before the node has read its log, and then answers 503.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (takes_requests(http) and listens(s3)):
        if server.poll() is not None or time.monotonic() > deadline:
            tail = log_path.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the server does not listen on {http} and {s3}:\n{tail}")
        time.sleep(0.02)


def takes_requests(http):
    try:
        urllib.request.urlopen(f"http://{http}/healthz", timeout=5).close()
    except OSError:
        return False
    return True


def listens(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True
