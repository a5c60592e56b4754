"""What can be checked of the Helm chart without Kubernetes: it fits together, and its commands run a cluster.

`make helm-check` shows that deploy/helm/rendered is what the chart renders.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "helm"
BINARY = os.environ.get("MILLRACE_BINARY", "")
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="deploy/ is in the repository only")
RENDERED = sorted((FOLDER / "rendered").glob("*.yaml")) if FOLDER.exists() else []
Manifest = dict[str, Any]


def manifests(path: Path) -> dict[tuple[str, str], Manifest]:
    every = [one for one in yaml.safe_load_all(path.read_text()) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in every}
    assert len(named) == len(every), "two have the same name"
    return named


def within(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_what_is_rendered_is_of_this_chart() -> None:
    sources = [path for name in ("millrace", "values") for path in (FOLDER / name).rglob("*") if path.is_file()]
    lines = {f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(FOLDER)}" for path in sources}
    told = (FOLDER / "rendered" / "sources.sha256").read_text().splitlines()
    assert lines == set(told), "make helm-check HELM_CHECK=--update"
    assert [path.stem for path in RENDERED] == ["cluster", "everything", "single"]


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_manifests_fit_together(path: Path) -> None:
    every = manifests(path)
    workload = every["StatefulSet", "millrace"]["spec"]
    pod, labels = workload["template"]["spec"], workload["template"]["metadata"]["labels"]
    assert within(workload["selector"]["matchLabels"], labels)
    [node] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    clients, peers = every["Service", "millrace"], every["Service", workload["serviceName"]]
    for service in (clients, peers):
        assert within(service["spec"]["selector"], labels)
        assert all(port["port"] == ports[port["targetPort"]] for port in service["spec"]["ports"])
    assert clients["spec"].get("clusterIP") != "None"
    # A name for each pod, from the moment it has an address.
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"] is True
    assert node["readinessProbe"]["httpGet"]["path"] == "/readyz"
    scheme = "HTTPS" if "--tls-certificate" in node["args"] else "HTTP"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert node[probe]["httpGet"]["port"] == "http"
        assert node[probe]["httpGet"]["scheme"] == scheme
    # A minority stays up: /readyz would have it restarted.
    assert node["livenessProbe"]["httpGet"]["path"] == node["startupProbe"]["httpGet"]["path"] == "/healthz"
    # The nodes of a cluster have it from `init`, as their other addresses.
    assert ("--s3" in node["args"]) == ("s3" in ports and workload["replicas"] == 1)
    if workload["replicas"] > 1:
        assert ports["peers"] == 7000
        assert workload["podManagementPolicy"] == "Parallel"
        assert "podAntiAffinity" in pod["affinity"]
        budget = every["PodDisruptionBudget", "millrace"]["spec"]
        assert budget["maxUnavailable"] == 1
        assert within(budget["selector"]["matchLabels"], labels)
        script = every["ConfigMap", "millrace"]["data"]["prepare.sh"]
        assert script == (FOLDER / "millrace" / "files" / "prepare.sh").read_text()


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_pods_have_no_rights_and_write_to_their_volume_only(path: Path) -> None:
    workload = manifests(path)["StatefulSet", "millrace"]["spec"]
    pod = workload["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    claims = {claim["metadata"]["name"] for claim in workload["volumeClaimTemplates"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for container in pod.get("initContainers", []) + pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        for mount in container["volumeMounts"]:
            assert mount["name"] in (claims if not mount.get("readOnly") else volumes)
    # The private keys of all nodes.
    assert "nodes" not in {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}


class Kubernetes:
    """What it does with the rendered manifests, in folders of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        every = manifests(FOLDER / "rendered" / "cluster.yaml")
        self.pod: Manifest = every["StatefulSet", "millrace"]["spec"]["template"]["spec"]
        settings: Manifest = every["ConfigMap", "millrace"]["data"]
        self.settings = folder / "settings"
        self.settings.mkdir()
        for name, text in settings.items():
            (self.settings / name).write_text(text)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
        numbers = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        self.http, self.peer = numbers[:3], numbers[3:]
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        programs = folder / "bin"
        programs.mkdir()
        (programs / "millrace").symlink_to(BINARY)
        self.environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        self.key = self.follow_the_guide(programs)

    def follow_the_guide(self, programs: Path) -> str:
        """Runs the guide's commands. A program in place of kubectl writes the Secrets to folders."""
        guide = (ROOT / "docs" / "guide" / "cluster.md").read_text()
        match = re.search(r"<!-- a test runs these commands -->\n\n```\n(.*?)```", guide, re.DOTALL)
        assert match is not None
        kubectl = programs / "kubectl"
        kubectl.write_text(
            "#!/bin/sh\nset -eu\nwhile [ $# -gt 0 ]; do case $1 in\n"
            'generic) mkdir "$2"; name=$2; shift ;;\n--from-file=*) cp "${1#*=}" "$name" ;;\nesac; shift; done\n'
        )
        kubectl.chmod(0o755)
        done = subprocess.run(
            ["sh", "-euc", match[1]], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    def volume(self, pod: int) -> Path:
        path = self.folder / f"volume-{pod}"
        path.mkdir(exist_ok=True)
        return path

    def here(self, word: str, pod: int) -> str:
        folders = {
            "/nodes": self.folder / "millrace-nodes",
            "/keys": self.folder / "millrace-keys",
            "/settings": self.settings,
            "/data": self.volume(pod),
        }
        return re.sub("^/[a-z]+", lambda match: str(folders[match[0]]), word)

    def prepare(self, pod: int) -> subprocess.CompletedProcess[str]:
        [container] = self.pod["initContainers"]
        environment = dict(self.environment)
        for variable in container["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[variable["name"]] = f"millrace-{pod}" if field == "metadata.name" else variable["value"]
        command = [self.here(word, pod) for word in container["command"]]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def start(self, pod: int) -> None:
        done = self.prepare(pod)
        assert done.returncode == 0, done.stderr
        self.name_ports(pod)
        [container] = self.pod["containers"]
        command = [self.here(word, pod) for word in container["command"] + container["args"]]
        log = (self.folder / f"log-{pod}").open("ab")
        self.running[pod] = subprocess.Popen(command, env=self.environment, cwd="/", stdout=log, stderr=log)

    def name_ports(self, pod: int) -> None:
        """Pods have names of their own and the same ports. Here they have ports. The others still have names."""
        path = self.volume(pod) / "node" / "cluster.json"
        text = path.read_text()
        for other in range(3):
            host = f"millrace-{other}.millrace-peers"
            to = "127.0.0.1" if other == pod else "localhost"
            text = text.replace(f'"{host}:8080"', f'"{to}:{self.http[other]}"')
            text = text.replace(f'"{host}:7000"', f'"{to}:{self.peer[other]}"')
        path.write_text(text)

    def kill(self, pod: int) -> None:
        process = self.running.pop(pod)
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def status(self, pod: int, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http[pod]}{path}", timeout=5) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_until_ready(self, *pods: int) -> None:
        for pod in pods:
            self.wait(lambda pod=pod: self.status(pod, "/readyz") == 200, f"pod {pod} is ready")

    def wait(self, what: Callable[[], bool], name: str) -> None:
        end = time.monotonic() + 60
        while not what():
            for pod, process in self.running.items():
                assert process.poll() is None, (self.folder / f"log-{pod}").read_text()
            assert time.monotonic() < end, name
            time.sleep(0.1)

    def millrace(self, pod: int, *words: str) -> subprocess.CompletedProcess[str]:
        where = ["--url", f"http://127.0.0.1:{self.http[pod]}", "--api-key", self.key]
        return subprocess.run(["millrace", *words, *where], env=self.environment, capture_output=True, text=True)

    def owned_by(self, pod: int, node: int) -> int:
        """How many shards a node owns, as a pod sees it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http[pod]}/cluster", headers={"authorization": f"Bearer {self.key}"}
        )
        with urllib.request.urlopen(request, timeout=5) as reply:
            return sum(shard["owner"] == node for shard in json.load(reply)["shards"])

    def call(self, pod: int, target: str, *words: str) -> Any:
        """Makes a call until it is answered: a client would do so."""
        said: list[Any] = []

        def answered() -> bool:
            done = self.millrace(pod, "call", target, *words)
            said.append(json.loads(done.stdout) if done.returncode == 0 else done.stderr)
            return done.returncode == 0

        self.wait(answered, target)
        return said[-1]


def command_of(path: Path) -> list[str]:
    [node] = manifests(path)["StatefulSet", "millrace"]["spec"]["template"]["spec"]["containers"]
    return [*node["command"], *node["args"]]


@pytest.mark.skipif(not BINARY, reason="MILLRACE_BINARY names no server")
@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_the_server_knows_the_flags(path: Path) -> None:
    told = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    flags = {word for word in command_of(path) if word.startswith("--")}
    assert flags <= set(re.findall(r"--[a-z0-9-]+", told))


@pytest.mark.skipif(not BINARY, reason="MILLRACE_BINARY names no server")
def test_a_single_node_serves(tmp_path: Path) -> None:
    keys = ["--keys", str(tmp_path / "keys.json"), "add", "--role", "admin", "operator"]
    subprocess.run([BINARY, "keys", *keys], check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    here = {"millrace": BINARY, "0.0.0.0:8080": address, "/data/node": f"{tmp_path}/node", "/keys/keys.json": keys[1]}
    command = command_of(FOLDER / "rendered" / "single.yaml")
    assert here.keys() <= set(command)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([here.get(word, word) for word in command], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{address}/readyz", timeout=5) as reply:
                    assert reply.status == 200
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < end
                time.sleep(0.05)
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Kubernetes]:
    if not BINARY:
        pytest.skip("MILLRACE_BINARY names no server")
    started = Kubernetes(tmp_path)
    yield started
    for pod in list(started.running):
        started.kill(pod)


def test_the_pods_serve_and_keep_their_data(kubernetes: Kubernetes) -> None:
    kubernetes.start(0)
    kubernetes.wait(lambda: kubernetes.status(0, "/healthz") == 200, "one pod lives without the others")
    assert kubernetes.status(0, "/readyz") == 503
    for pod in (1, 2):
        kubernetes.start(pod)
    kubernetes.wait_until_ready(0, 1, 2)
    (kubernetes.settings / "first-start").write_text("false")
    deployed = kubernetes.millrace(0, "deploy", str(ROOT / "examples" / "counter"))
    assert deployed.returncode == 0, deployed.stderr
    keys = [f"counter/{number}" for number in range(9)]
    for number, key in enumerate(keys):
        assert kubernetes.call(number % 3, f"{key}/add", "7") == 7

    # A pod is killed and comes back with its volume.
    written = (kubernetes.volume(1) / "node" / "cluster.json").stat()
    kubernetes.kill(1)
    for key in keys:
        assert kubernetes.call(0, f"{key}/value") == 7
    kubernetes.start(1)
    assert (kubernetes.volume(1) / "node" / "cluster.json").stat().st_ino == written.st_ino
    kubernetes.wait_until_ready(1)
    for key in keys:
        assert kubernetes.call(1, f"{key}/value") == 7

    # A pod loses its volume: it gets everything from the others, of which one is lost then.
    kubernetes.kill(2)
    kubernetes.wait(lambda: kubernetes.owned_by(0, node=3) == 0, "the others own its shards")
    kubernetes.volume(2).rename(kubernetes.folder / "lost")
    kubernetes.start(2)
    assert (kubernetes.volume(2) / "node" / "emptied").exists()
    kubernetes.wait_until_ready(2)

    # It has caught up once it owns its share, as the guide says.
    kubernetes.wait(lambda: kubernetes.owned_by(2, node=3) > 15, "the pod owns its share")
    kubernetes.kill(0)
    for key in keys:
        assert kubernetes.call(2, f"{key}/value") == 7
        assert kubernetes.call(1, f"{key}/add", "1") == 8


def test_a_volume_is_made_once_and_for_its_own_cluster(kubernetes: Kubernetes) -> None:
    assert kubernetes.prepare(0).returncode == 0
    node = kubernetes.volume(0) / "node"
    text = (node / "cluster.json").read_text()
    peers = [member["peer"] for member in json.loads(text)["members"]]
    assert peers == [f"millrace-{pod}.millrace-peers:7000" for pod in range(3)]
    assert not (node / "emptied").exists()
    # Also if it was stopped in the middle the time before.
    (kubernetes.volume(0) / "unfinished").mkdir()
    (node / "newer").write_text("of the node")
    assert kubernetes.prepare(0).returncode == 0
    assert (node / "newer").exists()
    assert [path.name for path in kubernetes.volume(0).iterdir()] == ["node"]
    other = "11" if '"cluster": "00' in text else "00"
    (node / "cluster.json").write_text(re.sub('"cluster": "..', f'"cluster": "{other}', text))
    refused = kubernetes.prepare(0)
    assert refused.returncode == 1
    assert "another cluster" in refused.stderr
    assert (node / "newer").exists()


def archive(kubernetes: Kubernetes, change: Callable[[Path], Any]) -> None:
    """Makes the archive of the first node anew."""
    folder = kubernetes.folder / "shop" / "n1"
    change(folder)
    with tarfile.open(kubernetes.folder / "millrace-nodes" / "n1.tar", "w") as tar:
        tar.add(folder, ".")


def test_archives_that_no_new_node_can_be_made_of_are_refused(kubernetes: Kubernetes) -> None:
    def refusal() -> str:
        done = kubernetes.prepare(0)
        assert done.returncode == 1
        assert not (kubernetes.volume(0) / "node").exists()
        return done.stderr

    day_and_more = time.time() - 25 * 60 * 60
    archive(kubernetes, lambda folder: os.utime(folder / "node.json", (day_and_more, day_and_more)))
    assert "older than a day" in refusal()
    file = kubernetes.folder / "shop" / "n1" / "cluster.json"
    os.utime(file.parent / "node.json")
    text = file.read_text()
    archive(kubernetes, lambda _: file.write_text(text.replace("millrace-0.millrace-peers:7000", "10.0.0.1:7000")))
    assert "was not given millrace-0.millrace-peers:7000" in refusal()
    archive(kubernetes, lambda _: file.write_text(text.replace('"node": 1,', '"node": 2,')))
    assert "another node" in refusal()
    (kubernetes.folder / "millrace-nodes" / "n1.tar").unlink()
    assert "no usable n1.tar" in refusal()
