"""An ASGI application that serves services: for uvicorn, hypercorn, gunicorn, and whatever scales to zero."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from ._protocol import payloads, signature
from ._protocol.frames import CONTENT_TYPE, OLDEST_VERSION, VERSION, ProtocolError
from ._stream import Body, EndedEarly, Receive, Send, Stream
from ._types import dumps
from ._worker.threads import NoThread
from ._worker.worker import KEPT_ATTEMPTS, THREADS, Worker
from .service import Service

Scope = MutableMapping[str, Any]

SECRET_VARIABLE = "MILLRACE_WORKER_SECRET"
PUBLIC_KEY_VARIABLE = "MILLRACE_WORKER_PUBLIC_KEY"

# As many bytes as the server sends of one attempt, and the headers of their frames.
_BODY_LIMIT_BYTES = 65 * 1024 * 1024
_VERSIONS = {str(version): version for version in range(OLDEST_VERSION, VERSION + 1)}


class _Refusal(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def asgi(
    *services: type[Service],
    secret: str | bytes | None = None,
    public_key: str | None = None,
    threads: int = THREADS,
    kept_attempts: int = KEPT_ATTEMPTS,
    concurrency: int | None = None,
    stream: bool = True,
) -> Application:
    """An application for these services.

    :param secret: the deployment's secret, with which the server signs its requests. It is that of the
        environment variable ``MILLRACE_WORKER_SECRET`` if this and ``public_key`` are left out. It has 16 bytes
        or more. Without both, the application answers only clients on the loopback address.
    :param public_key: what ``millrace apps worker-key APP`` prints, for a deployment with
        ``--worker-signature ed25519``. It is that of ``MILLRACE_WORKER_PUBLIC_KEY`` if both are left out.
    :param threads: how many plain ``def`` handlers run at once.
    :param kept_attempts: how many suspended handlers stay in memory. Others are run again.
    :param concurrency: how many calls from outside run at once, in all processes together: 256 if it is left out. The
        server has the others wait.
    :param stream: whether a deployment over HTTP/2 gets the mode ``stream``: one stream for each attempt, on which
        the handler runs once, whatever it reads. It needs an ASGI server that hands a request's body on while the
        answer is sent, as hypercorn does, and no proxy before it that waits for whole requests. An ``async`` handler
        that holds up the event loop for a second is then given up.
    """
    worker = Worker(services, threads, kept_attempts, concurrency)
    return Application(services, worker, _verifier(secret, public_key), stream)


def _verifier(secret: str | bytes | None, public_key: str | None) -> signature.Verifier | None:
    if secret is None and public_key is None:
        secret = os.environ.get(SECRET_VARIABLE) or None
        public_key = os.environ.get(PUBLIC_KEY_VARIABLE) or None
    if secret is not None and public_key is not None:
        raise ValueError("a worker has a secret or a public key, not both")
    if public_key is not None:
        return signature.ServerKey(public_key)
    if secret is not None:
        return signature.Secret(secret.encode() if isinstance(secret, str) else secret)
    return None


class Application:
    """What :func:`asgi` makes."""

    def __init__(
        self,
        services: Sequence[type[Service]],
        worker: Worker,
        verifier: signature.Verifier | None,
        stream: bool = True,
    ) -> None:
        self.services = list(services)
        self._worker = worker
        self._verifier = verifier
        self._streams = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise RuntimeError(f"a worker does not speak {scope['type']}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self._worker.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if _is_stream(scope) and scope["path"].endswith("/invoke"):
                await self._stream(scope, Body(receive), send)
                return
            body = await _body_of(receive)
            content_type, answer = await self._answer(scope, body)
            status = 200
        except _Refusal as refusal:
            status, content_type = refusal.status, b"application/json"
            answer = dumps({"code": "worker-refused", "detail": refusal.detail})
        except NoThread as error:
            # The server makes the call again, or tells its caller to.
            status, content_type = 503, b"application/json"
            answer = dumps({"code": "worker-unavailable", "detail": str(error)})
        except ProtocolError as error:
            status, content_type = 400, b"application/json"
            answer = dumps({"code": "worker-protocol", "detail": str(error)})
        _send_at_once(send)
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _stream(self, scope: Scope, body: Body, send: Send) -> None:
        """Serves one attempt on a stream of its own."""
        if scope["method"] != "POST":
            raise _Refusal(405, "POST /invoke")
        if scope.get("http_version") != "2":
            raise _Refusal(400, "the mode stream needs HTTP/2 all the way: deploy this worker again")
        try:
            frame, signed = await body.start()
        except EndedEarly:
            return
        headers = self._check(scope, signed)
        version = _version(headers.get("millrace-worker-protocol"))
        start = payloads.decode_start(frame.payload, frame.flags)
        if headers.get("millrace-attempt", "") != start.attempt.hex() or frame.stream:
            raise ProtocolError("the header millrace-attempt names another attempt, or START a stream")
        await Stream(self._worker, body, send).serve(start, version)

    async def _answer(self, scope: Scope, body: bytes) -> tuple[bytes, bytes]:
        path = scope["path"]
        method = scope["method"]
        if path.endswith("/invoke"):
            if method != "POST":
                raise _Refusal(405, "POST /invoke")
            headers = self._check(scope, body)
            version = _version(headers.get("millrace-worker-protocol"))
            attempt = headers.get("millrace-attempt", "")
            return CONTENT_TYPE.encode(), await self._worker.invoke(body, attempt, version)
        if path.endswith("/discovery"):
            if method != "GET":
                raise _Refusal(405, "GET /discovery")
            headers = self._check(scope, body)
            _version(headers.get("millrace-worker-protocol", str(VERSION)))
            streams = self._streams and _is_stream(scope) and scope.get("http_version") == "2"
            return b"application/json", self._worker.discovery("stream" if streams else "request-reply")
        raise _Refusal(404, "this is a Millrace worker: GET /discovery, POST /invoke")

    def _check(self, scope: Scope, body: bytes) -> dict[str, str]:
        """Refuses whoever is not the server; gives the headers that matter here."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name.startswith(b"millrace-")
        }
        if self._verifier is None:
            client = scope.get("client")
            # A socket of this machine's file system has no address.
            if client and not is_loopback(client[0]):
                variables = f"{SECRET_VARIABLE} or {PUBLIC_KEY_VARIABLE}"
                raise _Refusal(401, f"a worker without a secret answers only this machine: set {variables}")
            return headers
        raw_path = scope.get("raw_path")
        path = (raw_path.decode("latin-1") if raw_path else scope["path"]).partition("?")[0]
        problem = signature.refusal(self._verifier, scope["method"], path, headers, body, time.time())
        if problem is not None:
            raise _Refusal(401, problem)
        return headers


def _is_stream(scope: Scope) -> bool:
    """Whether a request is of the mode ``stream``, or offers it."""
    return any(name == b"millrace-worker-mode" and value == b"stream" for name, value in scope["headers"])


def _version(text: str | None) -> int:
    """The version of the protocol that a request is of."""
    version = _VERSIONS.get(text or "")
    if version is None:
        raise _Refusal(400, f"this worker speaks the versions {OLDEST_VERSION} to {VERSION} of the protocol")
    return version


def _send_at_once(send: Send) -> None:
    """Sets TCP_NODELAY where uvicorn's own loop does not: with ``--workers`` and ``--fd``.

    uvicorn sends a reply's head and body apart, and the second would wait 40 ms for the acknowledgement of the
    first. ASGI has no way to the socket, so this looks into uvicorn; other servers are left alone.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if not isinstance(transport, asyncio.Transport):
        return
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        pass  # The connection has ended.


async def _body_of(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    parts = [body]
    length = len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refusal(400, "the request ended early")
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > _BODY_LIMIT_BYTES:
            raise _Refusal(413, "the request is too large")
    return b"".join(parts)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
