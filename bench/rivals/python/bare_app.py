"""What an ASGI server costs: one function that parses JSON and answers JSON, and keeps nothing."""

import json
from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    message = await receive()
    amount = json.loads(message.get("body") or b"0")
    answer = json.dumps(10 + amount).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
