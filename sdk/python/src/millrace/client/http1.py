"""HTTP/1.1 requests over asyncio streams: as much as the asynchronous client needs."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from .core import Prepared, Reply

_IDLE_CONNECTIONS = 128
_HEAD_LIMIT_BYTES = 64 * 1024


class HttpError(Exception):
    """The other end does not speak HTTP as expected."""


class Pool:
    """Connections that are kept; each request has one for itself."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path
        self._tls = ssl.create_default_context() if secure else None
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def exchange(self, prepared: Prepared, timeout: float) -> Reply:
        return await asyncio.wait_for(self._exchange(prepared), timeout + prepared.extra_seconds)

    async def _exchange(self, prepared: Prepared) -> Reply:
        reader, writer = await self._take()
        try:
            writer.write(self._head(prepared) + prepared.body)
            await writer.drain()
            reply, keep = await _read(reader, prepared.method)
        except BaseException:
            writer.close()
            raise
        if keep and len(self._idle) < _IDLE_CONNECTIONS:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return reply

    async def _take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            # The server closes connections that were idle for long.
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_HEAD_LIMIT_BYTES)

    def _head(self, prepared: Prepared) -> bytes:
        lines = [
            f"{prepared.method} {self._prefix}{prepared.path} HTTP/1.1",
            f"host: {self._authority}",
            f"content-length: {len(prepared.body)}",
        ]
        lines += [f"{name}: {value}" for name, value in prepared.headers.items()]
        for line in lines:
            if "\r" in line or "\n" in line:
                raise ValueError("a header holds a line break")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()


async def _read(reader: asyncio.StreamReader, method: str) -> tuple[Reply, bool]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise HttpError("the connection was closed before the answer came") from None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise HttpError(f"not a status line: {first[:80]!r}")
    status = int(rest[:3])
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if status in (204, 304) or method == "HEAD":
        body = b""
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        return Reply(status, headers, await reader.read()), False
    return Reply(status, headers, body), headers.get("connection", "").lower() != "close"


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        size = int((await reader.readline()).partition(b";")[0], 16)
        if size:
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
            continue
        while (await reader.readline()).strip():
            pass  # Trailers.
        return b"".join(parts)
