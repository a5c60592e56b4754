"""A node's memory does not grow with an object: it comes in one request, in parts by awscli, and goes out again.

The content is made and compared as it goes, so the disk holds only the server's copy.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

import client
import node
from node import Node, require

GROWTH_KIB = 64 << 10
PIECE_BYTES = 1 << 20


class Content:
    """Content of a size that nothing can compress or guess, and that is made piece by piece."""

    def __init__(self, seed, size):
        self.size = size
        self.block = hashlib.shake_256(f"block {seed}".encode()).digest(PIECE_BYTES)

    def pieces(self):
        """Each piece begins with its number, so pieces in another order are other content."""
        for at in range(0, self.size, PIECE_BYTES):
            piece = at.to_bytes(8, "big") + self.block[8:]
            yield piece[: self.size - at]

    def digest(self):
        summed = hashlib.sha256()
        for piece in self.pieces():
            summed.update(piece)
        return summed.hexdigest()


def put_at_once(server, content):
    """One PUT whose body comes as it is made."""
    headers = {"content-length": str(content.size)}
    reply = client.Client(server).begin("PUT", "at-once", headers=headers, body=content.pieces())
    text = reply.read()
    require(reply.status == 200, f"PUT of {content.size} bytes: {reply.status} {text[:300]!r}")


def awscli(server, *arguments, **named):
    """Starts the AWS command line."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "AWS_ACCESS_KEY_ID": node.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": node.SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    program = pathlib.Path(sys.executable).parent / "aws"
    command = [sys.executable, program, "--endpoint-url", f"http://{server.s3}", "s3", "cp", *arguments]
    return subprocess.Popen(command, env=environment, **named)


def put_by_awscli(server, content):
    """Parts of 8 MiB and more, ten at a time, as awscli sends them."""
    arguments = ["-", "s3://proofs/by-awscli", "--expected-size", str(content.size)]
    process = awscli(server, *arguments, stdin=subprocess.PIPE)
    with process.stdin:
        for piece in content.pieces():
            process.stdin.write(piece)
    require(process.wait() == 0, f"awscli could not put {content.size} bytes")


def get(server, key, content, wanted):
    """Reads the object and compares it."""
    reply = client.Client(server).begin("GET", key)
    require(reply.status == 200, f"GET of {key}: {reply.status}")
    summed = hashlib.sha256()
    while piece := reply.read(PIECE_BYTES):
        summed.update(piece)
    require(summed.hexdigest() == wanted, f"{key} came back as another content")


def get_by_awscli(server, key, wanted):
    process = awscli(server, f"s3://proofs/{key}", "-", stdout=subprocess.PIPE)
    summed = hashlib.sha256()
    while piece := process.stdout.read(PIECE_BYTES):
        summed.update(piece)
    require(process.wait() == 0 and summed.hexdigest() == wanted, f"awscli got another content of {key}")


def prove(arguments, folder):
    content = Content(arguments.seed, arguments.bytes)
    wanted = content.digest()
    # Little memory for entities: a cache that fills would look like growth.
    with Node(arguments.binary, folder, ["--memory", "64MiB"]) as server:
        first = client.Client(server)
        first.done("PUT")
        first.done("PUT", "first", body=b"x" * (1 << 20))
        first.done("GET", "first")
        before_kib = server.resident_kib()
        told = []

        def step(name, action, *values):
            action(server, *values)
            told.append(f"{name} {server.resident_kib('VmHWM') - before_kib} KiB")

        step("put in one request", put_at_once, content)
        step("get", get, "at-once", content, wanted)
        client.Client(server).done("DELETE", "at-once")
        step("put by awscli", put_by_awscli, content)
        step("get", get, "by-awscli", content, wanted)
        step("get by awscli", get_by_awscli, "by-awscli", wanted)
        client.Client(server).done("DELETE", "by-awscli")
        grown_kib = server.resident_kib("VmHWM") - before_kib
        growth = ", ".join(told)
        require(grown_kib < GROWTH_KIB, f"the peak grew by {grown_kib} KiB, {GROWTH_KIB} are the bound: {growth}")
    return f"{arguments.bytes} bytes; the peak of {before_kib} KiB grew by, after each step: {growth}"
