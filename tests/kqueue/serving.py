"""A KqueueMsgQ server on an event loop in a thread, and clients that are plain sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from tambomq.kqueue import KqueueServer, Stats
from tests.kqueue.naive import message, subscribe
from tests.servers import eventually

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

_WITHIN_S = 60.0


class Served:
    """A server on its own event loop and a free port."""

    def __init__(self, loop: str, **options: Any) -> None:
        self._runner = asyncio.Runner(loop_factory=LOOPS[loop])
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.server = KqueueServer(**{"port": 0, **options})

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self.server.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.run(self.server.stop(0))
            assert not self.server._broker.peers
            assert not self.call(lambda: asyncio.all_tasks(self._loop))
        finally:
            self._end()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run *coroutine* on the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_WITHIN_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* on the server's loop and return its result."""
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(function()))
        return answer.result(_WITHIN_S)

    @property
    def stats(self) -> Stats:
        return self.call(lambda: self.server.stats)

    @property
    def peers(self) -> list[Any]:
        """The server's side of each connection."""
        return list(self.server._broker.peers)

    @property
    def port(self) -> int:
        return self.server.address[1]

    def connect(self, *data: bytes, tls: ssl.SSLContext | None = None) -> Raw:
        """A client that has sent these bytes; the caller closes it."""
        return Raw(self.port, tls).send_bytes(*data)

    def producer(self) -> Raw:
        return self.connect(b"produce")

    def consumer(self, *names: bytes) -> Raw:
        """A client whose subscriptions the server has registered; an empty name is all queues."""
        before = self.stats.subscriptions
        client = self.connect(b"consume", *map(subscribe, names))
        self.comes_to(lambda stats: stats.subscriptions == before + len(set(names)))
        return client

    def comes_to(self, condition: Callable[[Stats], bool]) -> None:
        """Wait until the server's statistics fulfil *condition*."""

        def holds() -> bool:
            stats = self.stats
            assert condition(stats), stats
            return True

        eventually(holds, within_s=_WITHIN_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()


class Raw:
    """A client that is a plain socket."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _WITHIN_S)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send_bytes(self, *data: bytes) -> Self:
        self.socket.sendall(b"".join(data))
        return self

    def send(self, *messages: tuple[bytes, bytes]) -> Self:
        return self.send_bytes(*(message(name, body) for name, body in messages))

    def read(self, size: int) -> bytes:
        """Read *size* bytes, or fewer if the server closes the connection before."""
        found = bytearray()
        while len(found) < size:
            try:
                piece = self.socket.recv(min(size - len(found), 1 << 20))
            except ConnectionResetError:
                break
            if not piece:
                break
            found += piece
        return bytes(found)

    def message(self) -> tuple[bytes, bytes]:
        """The next message."""
        assert self.read(1) == b"*"
        return self._field(), self._field()

    def messages(self, count: int) -> list[tuple[bytes, bytes]]:
        return [self.message() for _ in range(count)]

    def is_closed(self) -> bool:
        """Whether the server closes the connection without sending anything."""
        return self.read(1) == b""

    def rest(self) -> bytes:
        """All bytes until the server closes the connection."""
        return self.read(1 << 40)

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _field(self) -> bytes:
        return self.read(int.from_bytes(self.read(4), "big"))
