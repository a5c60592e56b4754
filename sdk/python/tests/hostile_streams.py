"""A worker of the mode ``stream`` that keeps no promise: each handler does wrong what its name says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from millrace._protocol.frames import Type, decode_all, encode
from millrace._protocol.payloads import decode_start

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

TIMEOUT_MS = 2_000
_OUTPUT = encode(Type.OUTPUT, b"\x00\x00\x00\x00\x017")
_HEARTBEAT = encode(Type.HEARTBEAT, b"")
_GET = encode(Type.GET, (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"f")
_SUSPEND = encode(Type.SUSPEND, (1).to_bytes(4, "big") * 2)
_LOG = encode(Type.LOG, b"\x01" + (60_000).to_bytes(4, "big") + b"x" * 60_000)
HANDLERS = ("silent", "early", "void", "flood", "refused", "deaf", "unended")


async def until_given_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def invoke(handler: str, receive: Receive, send: Send) -> None:
    status = 418 if handler == "refused" else 200
    await send({"type": "http.response.start", "status": status, "headers": []})

    async def say(data: bytes, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    if handler == "refused":
        await say(b"tea", more=False)
    elif handler == "early":
        await say(_LOG, more=False)
    elif handler == "void":
        await say(_OUTPUT[:-1] + b"\xff" + _OUTPUT)
        await until_given_up(receive)
    elif handler == "flood":
        for _ in range(2_000):
            await say(_LOG)
        await until_given_up(receive)
    elif handler == "deaf":
        # It is alive, has asked for something, and does not read what it gets.
        await say(_GET + _SUSPEND)
        for _ in range(40):
            await asyncio.sleep(0.1)
            await say(_HEARTBEAT)
    elif handler == "unended":
        await say(_OUTPUT)
        await until_given_up(receive)
    else:
        await until_given_up(receive)


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            name = (await receive())["type"]
            await send({"type": f"{name}.complete"})
            if name == "lifespan.shutdown":
                return
    if scope["path"] == "/discovery":
        handlers = [{"name": name, "kind": "transaction", "timeout_ms": TIMEOUT_MS} for name in HANDLERS]
        document = {
            "protocol": {"min": 1, "max": 3},
            "mode": "stream",
            "services": [{"name": "hostile", "handlers": handlers}],
        }
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})
        return
    data = b""
    while not data or len(data) < 12 + int.from_bytes(data[:4], "big"):
        data += (await receive())["body"]
    frame = decode_all(data)[0]
    await invoke(decode_start(frame.payload, frame.flags).handler, receive, send)
