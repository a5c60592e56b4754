"""Worker CPU of one call, beside a bare ASGI function that parses and answers the same JSON.

    python bench/worker_cost.py [ROUNDS [REQUESTS]]

Both run under uvicorn with one process. The two take turns, so that a machine that gets slower does so for
both. CPU is what the kernel charges the server's process.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time

from millrace import Service, asgi
from millrace._protocol import payloads
from millrace._protocol.frames import Type, encode
from millrace._protocol.payloads import Kind, Start, Value


class Account(Service):
    balance: int = 0

    async def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance


worker = asgi(Account)


async def bare(scope, receive, send):  # type: ignore[no-untyped-def]
    message = await receive()
    amount = json.loads(message["body"])["amount"]
    answer = json.dumps({"balance": 10 + amount}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


ATTEMPT = b"a" * 16
# Requests that are under way at once, from one client that waits for all of them.
CONNECTIONS = 16


def request(path: str, body: bytes, headers: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def call_of_worker() -> bytes:
    start = Start(
        attempt=ATTEMPT, kind=Kind.TRANSACTION, deadline_ms=10_000, seen=0, service="account", handler="deposit",
        key=b"ann", invocation="", now_ms=1, seed=b"s" * 16, input=b'{"amount":5}',
        fields=((b"balance", Value(0, b"10")),),
    )  # fmt: skip
    payload, flags = payloads.encode_start(start)
    headers = f"content-type: x\r\nmillrace-worker-protocol: 1\r\nmillrace-attempt: {ATTEMPT.hex()}\r\n"
    return request("/invoke", encode(Type.START, payload, flags), headers)


CALLS = {
    "bare": request("/", b'{"amount":5}', "content-type: application/json\r\n"),
    "worker": call_of_worker(),
}


class Server:
    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            f"worker_cost:{name}",
            "--port",
            str(port),
            "--log-level",
            "warning",
        ]
        self.process = subprocess.Popen(command, cwd=os.path.dirname(os.path.abspath(__file__)))
        end = time.monotonic() + 10
        while True:
            try:
                self.connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            parts = file.read().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def complete(answer: bytes) -> bool:
        head, separator, body = answer.partition(b"\r\n\r\n")
        return bool(separator) and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])

    def run(self, count: int) -> float:
        """CPU microseconds of one request."""
        before = self.cpu_seconds()
        call = CALLS[self.name]
        for _ in range(count // CONNECTIONS):
            for connection in self.connections:
                connection.sendall(call)
            for connection in self.connections:
                answer = connection.recv(65536)
                while not self.complete(answer):
                    answer += connection.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200"), answer
        return (self.cpu_seconds() - before) / count * 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    servers = [Server("bare", 19690), Server("worker", 19691)]
    try:
        for server in servers:
            server.run(1_000)
        costs: dict[str, list[float]] = {"bare": [], "worker": []}
        for _ in range(rounds):
            for server in servers:
                costs[server.name].append(server.run(count))
        medians = {name: statistics.median(values) for name, values in costs.items()}
        for name, values in costs.items():
            print(
                f"{name:8} {medians[name]:6.1f} µs CPU a request  (rounds: {', '.join([f'{v:.1f}' for v in values])})"
            )
        print(f"worker / bare: {medians['worker'] / medians['bare']:.2f}")
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
