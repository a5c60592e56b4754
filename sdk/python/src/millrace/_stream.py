"""One attempt on a stream of HTTP/2: frames go both ways at once, so the handler runs once and answers at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ._protocol import payloads
from ._protocol.frames import CONTENT_TYPE, Frame, ProtocolError, Reader, Type, decode, encode
from ._protocol.payloads import Start
from ._worker.attempt import Attempt
from ._worker.replay import place_of_task
from ._worker.worker import Worker, read_input, told

log = logging.getLogger("millrace")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# The server wants a frame every 300 ms while it waits.
_HEARTBEAT_SECONDS = 0.2
# The server waits for a second until the answer has ended.
_ENDING_SECONDS = 0.5
_HEARTBEAT = encode(Type.HEARTBEAT, b"")


class EndedEarly(Exception):
    """The server has ended its side, or the connection is lost."""


class Body:
    """A request's body: its frames, as they come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._reader = Reader()
        #: The server has ended its side in order.
        self.ended = False
        self._early: list[Frame] = []

    async def start(self) -> tuple[Frame, bytes]:
        """The first frame, and its bytes: they are what is signed."""
        data = bytearray()
        while True:
            data += await self._more()
            decoded = decode(data)
            if decoded is not None:
                frame, end = decoded
                if frame.type is not Type.START:
                    raise ProtocolError("a stream begins with START")
                self._early = self._reader.feed(bytes(data[end:]))
                return frame, bytes(data[:end])
            if self.ended:
                raise ProtocolError("the stream ended before START was whole")

    async def frames(self) -> list[Frame]:
        """More frames; none where none is whole yet, or the server has ended its side."""
        early, self._early = self._early, []
        return early or self._reader.feed(await self._more())

    async def _more(self) -> bytes:
        if self.ended:
            return b""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise EndedEarly
        self.ended = not message.get("more_body", False)
        data: bytes = message.get("body", b"")
        return data


class Stream:
    """The worker's end of one attempt."""

    def __init__(self, worker: Worker, body: Body, send: Send) -> None:
        self._worker = worker
        self._body = body
        self._send_message = send
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._has_begun = False
        self._attempt: Attempt | None = None
        # The handler has ended, or nobody waits for it any more.
        self._is_over = False
        self._beat_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, start: Start, version: int) -> None:
        """Runs the handler, until the server has ended its side too."""
        opened = self._worker.open(start, 0, version)
        try:
            if isinstance(opened, bytes):
                self._is_over = True
                await self._send(opened)
            else:
                self._attempt = opened
                opened.on_progress = self._begin_turn
                self._begin_turn()
            while not self._body.ended:
                for frame in await self._body.frames():
                    await self._take(frame)
            # If the handler has not ended, the server has given it up.
            self._end_attempt()
            if self._tasks:
                # What is on its way goes out. A turn that another has overtaken never ends.
                _, pending = await asyncio.wait(self._tasks, timeout=_ENDING_SECONDS)
                for task in pending:
                    task.cancel()
        except EndedEarly:
            return
        except ProtocolError as error:
            # The answer ends before its turn, so the server gives the attempt up.
            log.error("the server breaks the protocol: %s", error)
        finally:
            self._end_attempt()
        # Only now: there are servers of ASGI that fail where bytes come behind an answer's end.
        await self._send(b"", is_last=True)

    def _end_attempt(self) -> None:
        self._is_over = True
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        if self._attempt is not None:
            self._worker.close_attempt(self._attempt)
            self._attempt = None

    async def _take(self, frame: Frame) -> None:
        if frame.stream:
            raise ProtocolError("a stream of HTTP/2 carries one attempt, whose stream is 0")
        if frame.type is Type.PING:
            # Where something is being sent, the server hears of this worker anyway.
            if not self._sending.locked():
                await self._send(_HEARTBEAT)
        elif frame.type is Type.CANCEL:
            self._cancel(payloads.decode_failure(frame.payload).message)
        else:
            given = read_input(frame)
            if self._attempt is not None and not self._is_over and self._attempt.feed(given):
                self._begin_turn()

    def _cancel(self, message: str) -> None:
        if self._attempt is not None and not self._is_over:
            log.debug("%s: %s (%s)", told(self._attempt.start), message, place_of_task(self._attempt.task))
        raise EndedEarly

    # -- turns ------------------------------------------------------------------------------------

    def _begin_turn(self) -> None:
        if self._beat_timer is None:
            self._beat_timer = self._loop.call_later(_HEARTBEAT_SECONDS, self._beat)
        self._spawn(self._turn())

    async def _turn(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        frames = await attempt.turn([])
        if self._is_over:
            return
        if attempt.ended:
            self._end_attempt()
        if frames:
            await self._send(frames)

    def _beat(self) -> None:
        self._beat_timer = None
        if self._is_over or self._attempt is None or not self._attempt.is_in_a_turn:
            return
        self._beat_timer = self._loop.call_later(_HEARTBEAT_SECONDS, self._beat)
        if not self._sending.locked():
            self._spawn(self._send(_HEARTBEAT))

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, data: bytes, is_last: bool = False) -> None:
        async with self._sending:
            if not self._has_begun:
                self._has_begun = True
                headers = [(b"content-type", CONTENT_TYPE.encode())]
                await self._send_message({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_message({"type": "http.response.body", "body": data, "more_body": not is_last})
