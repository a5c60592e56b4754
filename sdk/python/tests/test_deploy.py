"""What can be checked of deploy/ without a cluster: names that have to agree, and commands that have to start."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace._asgi import SECRET_VARIABLE

FOLDER = Path(__file__).parents[3] / "deploy"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="deploy/ is in the repository only")
BINARY = os.environ.get("MILLRACE_BINARY", "")
MANIFESTS = sorted((FOLDER / "knative").glob("*.yaml")) if FOLDER.exists() else []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_name_what_a_worker_reads(path: Path) -> None:
    text = path.read_text()
    assert f"name: {SECRET_VARIABLE}" in text
    assert re.search(r"name: (http1|h2c)\n\s+containerPort: 8081", text)
    assert "apiVersion: serving.knative.dev/v1\nkind: Service" in text
    assert "\t" not in text


def compose(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / "docker" / name).read_text())
    return read


@pytest.mark.parametrize("name", ["compose.yaml", "cluster.yaml"])
def test_compose_files_declare_what_they_use(name: str) -> None:
    file = compose(name)
    for key in file:
        assert key in ("services", "networks", "volumes", "secrets") or key.startswith("x-")
    for service in file["services"].values():
        assert ("image" in service) != ("build" in service)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in file["volumes"]
        for secret in service.get("secrets", []):
            assert secret in file["secrets"]
        for network in service.get("networks", {}):
            assert network in file["networks"]


def test_the_nodes_of_the_compose_file_have_addresses_and_ports_of_their_own() -> None:
    file = compose("cluster.yaml")
    subnet = ipaddress.ip_network(file["networks"]["nodes"]["ipam"]["config"][0]["subnet"])
    nodes = [service for service in file["services"].values() if "networks" in service]
    addresses = {service["networks"]["nodes"]["ipv4_address"] for service in nodes}
    assert len(addresses) == len(nodes) == 3
    # The first one is the gateway's.
    assert all(ipaddress.ip_address(one) in list(subnet.hosts())[1:] for one in addresses)
    assert len({service["ports"][0] for service in nodes}) == 3
    assert len({tuple(service["command"]) for service in nodes}) == 3


def test_the_servers_image_is_what_others_take_it_for() -> None:
    lines = (FOLDER / "docker" / "server.Dockerfile").read_text().splitlines()
    [statefulset] = [
        one
        for one in yaml.safe_load_all((FOLDER / "helm" / "rendered" / "everything.yaml").read_text())
        if one and one["kind"] == "StatefulSet"
    ]
    pod = statefulset["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in lines
    # A named volume takes its owner from the image, if the image has the folder.
    assert f"RUN install -d -o {user} -g {user} /data /cluster" in lines
    for name in ("compose.yaml", "cluster.yaml"):
        for service in compose(name)["services"].values():
            assert {volume.split(":")[1] for volume in service.get("volumes", [])} <= {"/data", "/cluster"}
    ports = " ".join(str(port["containerPort"]) for port in pod["containers"][0]["ports"])
    assert f"EXPOSE {ports}" in lines
    assert 'ENTRYPOINT ["millrace"]' in lines


@pytest.mark.parametrize("name", ["Dockerfile", "server.Dockerfile"])
def test_hadolint_finds_nothing_in_a_dockerfile(name: str) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, FOLDER / "docker" / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def command_of(text: str) -> str:
    """The shell command of a Dockerfile or manifest."""
    match = re.search(r'\["sh", "-c", "(.*)"\]', text)
    assert match is not None
    return match[1].replace('\\"', '"')


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running_worker(folder: Path, secret: str) -> Iterator[int]:
    """A worker, started as its image starts it."""
    (folder / "bank.py").write_text(
        "from millrace import Service, asgi\n\n\nclass Account(Service):\n    pass\n\n\napp = asgi(Account)\n"
    )
    command = command_of((FOLDER / "docker" / "Dockerfile").read_text())
    port = free_port()
    environment = {
        "MODULE": "bank:app",
        "PORT": str(port),
        "WORKERS": "1",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        SECRET_VARIABLE: secret,
    }
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=environment)
    try:
        yield port
    finally:
        process.terminate()
        assert process.wait(10) == 0 or process.returncode == -15


def answer_of(port: int, path: str) -> bytes:
    """What is answered there, once somebody listens and has started."""
    end = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
                answer = connection.recv(65536)
            if b"the node is starting" not in answer:
                return answer
        except OSError:
            pass
        assert time.monotonic() < end, "nobody serves"
        time.sleep(0.02)


def test_the_commands_serve_a_worker(tmp_path: Path) -> None:
    assert command_of((FOLDER / "knative" / "service-http1.yaml").read_text()).startswith("exec uvicorn")
    with running_worker(tmp_path, "a secret of a test") as port:
        # Signed only: so the secret of the environment has been read.
        assert answer_of(port, "/discovery").startswith(b"HTTP/1.1 401")


@pytest.mark.skipif(not BINARY, reason="MILLRACE_BINARY names no server")
def test_the_compose_file_serves_and_deploys_a_worker(tmp_path: Path) -> None:
    secret = tmp_path / "worker-secret"
    secret.write_text("5e" * 32)
    server_port = free_port()
    with running_worker(tmp_path, secret.read_text()) as worker_port:
        answer_of(worker_port, "/discovery")
        here = {
            "/data": str(tmp_path / "data"),
            "0.0.0.0:8080": f"127.0.0.1:{server_port}",
            "/run/secrets/worker-secret": str(secret),
            "http://worker:8081": f"http://127.0.0.1:{worker_port}",
            "http://server:8080": f"http://127.0.0.1:{server_port}",
        }

        def command(service: str) -> list[str]:
            return [BINARY, *(here.get(word, word) for word in compose("compose.yaml")["services"][service]["command"])]

        made = subprocess.run(command("keys"), capture_output=True, text=True, check=True)
        server = subprocess.Popen(command("server"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            # A key is needed, as it is where the containers' address asks for one.
            assert answer_of(server_port, "/apps").startswith(b"HTTP/1.1 401")
            environment = {"MILLRACE_API_KEY": made.stdout.strip()}
            assert compose("compose.yaml")["services"]["deploy"]["environment"] == list(environment)
            deployed = subprocess.run(command("deploy"), env=environment, capture_output=True, text=True)
            assert deployed.returncode == 0, deployed.stderr
            assert "deployed bank" in deployed.stdout
        finally:
            server.terminate()
            assert server.wait(30) == 0
