"""Check workers for hypercorn, below one URL: a right one, and some that break a rule of streams each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import millrace
from millrace._protocol.frames import Type, encode
from millrace.check import Check

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_HEARTBEAT = encode(Type.HEARTBEAT, b"")
_right = millrace.asgi(Check)


async def silent(scope: Any, receive: Receive, send: Send) -> None:
    """Sends no heartbeats."""

    async def quiet(message: dict[str, Any]) -> None:
        if message.get("body") != _HEARTBEAT:
            await send(message)

    await _right(scope, receive, quiet)


async def unended(scope: Any, receive: Receive, send: Send) -> None:
    """Does not end its answers on streams."""
    is_stream = (b"millrace-worker-mode", b"stream") in scope["headers"] and scope["method"] == "POST"

    async def endless(message: dict[str, Any]) -> None:
        await send({**message, "more_body": True} if is_stream and not message.get("more_body") else message)

    await _right(scope, receive, endless)


async def patient(scope: Any, receive: Receive, send: Send) -> None:
    """Waits for the whole request, as some proxies do."""
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())

    async def kept() -> dict[str, Any]:
        return messages.pop(0) if messages else await receive()

    await _right(scope, kept, send)


_APPS = {"right": _right, "silent": silent, "unended": unended, "patient": patient}


async def app(scope: Any, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        return await _right(scope, receive, send)
    await _APPS[scope["path"].split("/")[1]](scope, receive, send)
