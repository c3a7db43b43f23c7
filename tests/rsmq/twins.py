"""Both clients behind one blocking interface, so that each test runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, cast

from tambomq.rsmq import AsyncRsmq, Rsmq

KINDS = ("threads", "asyncio")

_ANSWER_WITHIN_S = 120.0


@contextmanager
def connected(kind: str, url: str, **options: Any) -> Iterator[Rsmq]:
    """A client of that *kind*; the asyncio one is wrapped to block, for use from any thread."""
    if kind == "threads":
        with Rsmq(url, **options) as client:
            yield client
        return
    with loop_in_a_thread() as run:
        waiting = AsyncRsmq(url, **options)
        try:
            yield cast("Rsmq", _Blocking(waiting, run))
        finally:
            run(waiting.close())


@contextmanager
def loop_in_a_thread() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A function that runs a coroutine on a separate event loop and returns the result."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_ANSWER_WITHIN_S)

    try:
        yield run
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Blocking:
    """An `AsyncRsmq` whose methods block and return the result."""

    def __init__(self, client: AsyncRsmq, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._client, self._run = client, run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._run(method(*args, **kwargs))
