"""Both kinds of clients behind one face, so that each behaviour is written once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

from tambomq.kqueue import AsyncConsumer, AsyncProducer, Consumer, Message, Producer
from tests.kqueue.serving import Served
from tests.rsmq.twins import loop_in_a_thread

KINDS = ("threads", "asyncio")


@contextmanager
def producing(kind: str, port: int, **options: Any) -> Iterator[Producer]:
    """A producer of that *kind*; the asyncio one blocks too."""
    if kind == "threads":
        with Producer(port=port, **options) as client:
            yield client
        return
    with loop_in_a_thread() as run:
        waiting = AsyncProducer(port=port, **options)
        try:
            yield cast("Producer", _Blocking(waiting, run))
        finally:
            run(waiting.close())


@contextmanager
def consuming(kind: str, port: int, **options: Any) -> Iterator[Consumer]:
    """A consumer of that *kind*; the asyncio one blocks too."""
    if kind == "threads":
        with Consumer(port=port, **options) as client:
            yield client
        return
    with loop_in_a_thread() as run:
        waiting = AsyncConsumer(port=port, **options)
        try:
            yield cast("Consumer", _Blocking(waiting, run))
        finally:
            run(waiting.close())


def has(served: Served, subscriptions: int) -> None:
    """Wait until the server knows of so many subscriptions."""
    served.comes_to(lambda stats: stats.subscriptions == subscriptions)


@contextmanager
def impostor() -> Iterator[tuple[socket.socket, int]]:
    """A socket that listens where a server is expected, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, listening.getsockname()[1]


class _Blocking:
    """An asyncio client whose methods return what they otherwise promise."""

    def __init__(self, client: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client, self._run = client, run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._run(method(*args, **kwargs))

    def __iter__(self) -> Iterator[Message]:
        received = aiter(self._client)
        while True:
            yield self._run(anext(received))
