"""Of writers with one condition exactly one wins: those that make an object, and those that replace it.

Each of 16 connections sends a request without its last byte. Then the last bytes follow one another at once, so that all
writers ask whether their condition holds at about the same time.
"""

import contextlib
import http.client
import random
import socket

import client
from node import Node, require

WRITERS = 16
# The smaller content is part of the object's entity, the other one is a body of its own.
SIZES = [40, 20_000]


class Writer:
    """A connection with a request that is under way."""

    def __init__(self, server):
        self.host = server.s3
        self.socket = socket.create_connection(("127.0.0.1", server.s3_port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last = b""

    def send_most(self, key, body, condition):
        """Sends all of a PUT but its last byte."""
        path = f"/proofs/{key}"
        headers = client.signed_headers("PUT", self.host, path, {**condition, "content-length": str(len(body))})
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = f"PUT {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        self.last = request[-1:]
        self.socket.sendall(request[:-1])

    def send_last(self):
        self.socket.sendall(self.last)

    def reply(self):
        """The status and the ETag."""
        answer = http.client.HTTPResponse(self.socket, method="PUT")
        answer.begin()
        answer.read()
        return answer.status, answer.headers.get("etag")


def race(writers, generator, key, condition, size):
    """Lets all writers put the object at once. Gives the winner's content and ETag, and what the others got."""
    bodies = [f"{key} {condition} {number} ".encode().ljust(size, b".") for number in range(WRITERS)]
    for writer, body in zip(writers, bodies):
        writer.send_most(key, body, condition)
    for writer in generator.sample(writers, WRITERS):
        writer.send_last()
    replies = [writer.reply() for writer in writers]
    statuses = [status for status, _ in replies]
    require(statuses.count(200) == 1, f"{key} with {condition}: {statuses.count(200)} writers won: {statuses}")
    require(all(status in (200, 409, 412) for status in statuses), f"{key} with {condition}: {statuses}")
    winner = statuses.index(200)
    return bodies[winner], replies[winner][1], statuses


def prove(arguments, folder):
    generator = random.Random(arguments.seed)
    counts = {409: 0, 412: 0}
    with Node(arguments.binary, folder) as server, contextlib.ExitStack() as open_sockets:
        reader = client.Client(server)
        reader.done("PUT")
        writers = [Writer(server) for _ in range(WRITERS)]
        for writer in writers:
            open_sockets.enter_context(writer.socket)
        for number in range(arguments.rounds):
            condition = {"if-none-match": "*"}
            for _ in range(2):
                key, size = f"object-{number}", SIZES[number % 2]
                body, etag, statuses = race(writers, generator, key, condition, size)
                found = reader.done("GET", key)
                require(found.body == body, f"{key} with {condition} holds {found.body[:80]!r}, not {body[:80]!r}")
                require(found.headers["etag"] == etag, f"{key}: {found.headers['etag']} is not the winner's {etag}")
                for status in counts:
                    counts[status] += statuses.count(status)
                condition = {"if-match": etag}
    return (
        f"{arguments.rounds} rounds of {WRITERS} writers, each with if-none-match and with if-match: one won each; "
        f"of the others {counts[412]} got 412 and {counts[409]} got 409"
    )
