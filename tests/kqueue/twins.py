"""Blocking and asyncio clients behind one blocking interface, so that each test runs on both."""

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
    """A producer of that *kind*; the asyncio one is wrapped to block."""
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
    """A consumer of that *kind*; the asyncio one is wrapped to block."""
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


def has_subscriptions(served: Served, subscriptions: int) -> None:
    """Wait until the server has that many subscriptions."""
    served.comes_to(lambda stats: stats.subscriptions == subscriptions)


@contextmanager
def silent_server() -> Iterator[tuple[socket.socket, int]]:
    """A listening socket that never answers, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, listening.getsockname()[1]


class _Blocking:
    """An asyncio client whose methods block and return the result."""

    def __init__(self, client: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client, self._run = client, run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._run(method(*args, **kwargs))

    def __iter__(self) -> Iterator[Message]:
        received = aiter(self._client)
        while True:
            yield self._run(anext(received))
