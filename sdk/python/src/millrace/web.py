"""Requests and replies of routes, and replies of servers outside."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from ._types import dumps, loads
from .errors import InvalidInput

Headers = Mapping[str, "str | int | list[str]"]


class Query(dict[str, str]):
    """Parameters of a URL, decoded. Of a repeated one the first counts; :meth:`all` gives the others."""

    def __init__(self, text: str) -> None:
        self._pairs = parse_qsl(text, keep_blank_values=True)
        super().__init__(reversed(self._pairs))

    def all(self, name: str) -> list[str]:
        return [value for known, value in self._pairs if known == name]


class Request:
    """A request to a route."""

    def __init__(self, data: bytes) -> None:
        described = loads(data)
        self.method: str = described["method"]
        #: The whole path, percent-encoded as it came.
        self.path: str = described["path"]
        self.query = Query(described.get("query") or "")
        #: The values of the ``:name`` parts of the route's path, decoded.
        self.params: dict[str, str] = described.get("params") or {}
        self._headers: list[list[str]] = described.get("headers") or []
        #: The body's bytes.
        self.body: bytes = base64.b64decode(described.get("body") or "")

    @property
    def headers(self) -> dict[str, str]:
        """Every header, its name in lower case; the first of several."""
        return {name.lower(): value for name, value in reversed(self._headers)}

    def header(self, name: str) -> str | None:
        """One header's first value; upper and lower case do not matter."""
        return self.headers.get(name.lower())

    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise InvalidInput("the body is not UTF-8") from None

    def json(self) -> Any:
        """The body as JSON. One that is none is answered with status 400."""
        try:
            return loads(self.body)
        except ValueError as error:
            raise InvalidInput(f"the body is not JSON: {error}") from None


@dataclass
class Response:
    """A reply with a status or headers. A route may also return the body alone."""

    #: A text, bytes, or anything else as JSON.
    body: Any = None
    #: 200, or 204 without a body.
    status: int | None = None
    headers: Headers = field(default_factory=dict)

    def encode(self) -> bytes:
        """The reply as the protocol has it."""
        body, kind = _body(self.body)
        headers = [
            [name, str(value)]
            for name, values in self.headers.items()
            for value in (values if isinstance(values, list) else [values])
        ]
        if kind is not None and "content-type" not in [name.lower() for name, _ in headers]:
            headers.append(["content-type", kind])
        status = self.status or (200 if kind is not None else 204)
        return dumps({"status": status, "headers": headers, "body": base64.b64encode(body).decode()})


def _body(body: Any) -> tuple[bytes, str | None]:
    if body is None:
        return b"", None
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return dumps(body), "application/json"


def encode_request(url: str, method: str, headers: Headers, body: Any, timeout_ms: int, retries: int | None) -> bytes:
    """A request to a server outside, as the protocol has it."""
    content, kind = _body(body)
    pairs = [
        [name, str(value)]
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    # Bytes say nothing of their type, as in the store's own functions.
    if kind not in (None, "application/octet-stream") and "content-type" not in [n.lower() for n, _ in pairs]:
        pairs.append(["content-type", kind])
    request: dict[str, Any] = {
        "method": method.upper(),
        "url": url,
        "headers": pairs,
        "body": base64.b64encode(content).decode(),
        "timeout_ms": timeout_ms,
    }
    if retries is not None:
        request["retries"] = retries
    return dumps(request)


class FetchResponse:
    """What a server outside answered. The whole body is there."""

    def __init__(self, data: bytes) -> None:
        described = loads(data)
        self.status: int = described["status"]
        self.headers: dict[str, str] = {}
        for name, value in described.get("headers") or []:
            name = name.lower()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self.content: bytes = base64.b64decode(described.get("body") or "")

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300

    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return loads(self.content)
