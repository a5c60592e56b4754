"""What can be checked of deploy/ without a cluster: names that have to agree, and commands that have to start."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millrace._asgi import SECRET_VARIABLE

FOLDER = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="deploy/ is in the repository only")
MANIFESTS = sorted((FOLDER / "knative").glob("*.yaml")) if FOLDER.exists() else []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_name_what_a_worker_reads(path: Path) -> None:
    text = path.read_text()
    assert f"name: {SECRET_VARIABLE}" in text
    assert re.search(r"name: (http1|h2c)\n\s+containerPort: 8081", text)
    assert "apiVersion: serving.knative.dev/v1\nkind: Service" in text
    assert "\t" not in text


def command_of(text: str) -> str:
    """The shell command of a Dockerfile or manifest."""
    match = re.search(r'\["sh", "-c", "(.*)"\]', text)
    assert match is not None
    return match[1].replace('\\"', '"')


def test_the_commands_serve_a_worker(tmp_path: Path) -> None:
    (tmp_path / "bank.py").write_text(
        "from millrace import Service, asgi\n\n\nclass Account(Service):\n    pass\n\n\napp = asgi(Account)\n"
    )
    command = command_of((FOLDER / "docker" / "Dockerfile").read_text())
    assert command_of((FOLDER / "knative" / "service-http1.yaml").read_text()).startswith("exec uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        "MODULE": "bank:app",
        "PORT": str(port),
        "WORKERS": "1",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        SECRET_VARIABLE: "a secret of a test",
    }
    process = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, env=environment)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(b"GET /discovery HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                    answer = connection.recv(65536)
                break
            except OSError:
                assert time.monotonic() < end, "the worker did not start"
                time.sleep(0.02)
        # Signed only: so the secret of the environment has been read.
        assert answer.startswith(b"HTTP/1.1 401")
    finally:
        process.terminate()
        assert process.wait(10) == 0 or process.returncode == -15
