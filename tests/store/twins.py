"""Both stores behind one blocking interface, so that each test runs on both."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome, Plan, Script
from tambomq.store.sync import Store

T = TypeVar("T")


class AnyStore(Protocol):
    """What both can do."""

    def run(self, call: Call[T]) -> T: ...
    def run_all(self, calls: Sequence[Call[T]]) -> list[T]: ...
    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]: ...
    def follow(self, plan: Plan[T]) -> T: ...
    def close(self) -> None: ...


class Looped:
    """An `AsyncStore` whose loop runs in a thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.store = AsyncStore(*args, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* comes to in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run(self, call: Call[T]) -> T:
        return self.wait(self.store.run(call))

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        return self.wait(self.store.run_all(calls))

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        return self.wait(self.store.outcomes(calls))

    def follow(self, plan: Plan[T]) -> T:
        return self.wait(self.store.follow(plan))

    def close(self) -> None:
        """Close the store, then end the loop as `asyncio.run` would."""
        if self._loop.is_closed():
            return
        self.wait(self.store.close())
        self.wait(asyncio.sleep(0.01))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def known(store: AnyStore) -> Any:
    """What a store of either kind knows of the primary."""
    inner: Any = store.store if isinstance(store, Looped) else store
    return inner._choice


KINDS: dict[str, Any] = {"blocking": Store, "asyncio": Looped}


def command(db: Any, *words: str) -> Any:
    """Send *words* as they are: redis-py gives no type to that."""
    return db.execute_command(*words)


def script(source: str) -> Script:
    """A script of a test's own; the first call sends its source."""
    return Script("test", source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


INCR = script("return redis.call('INCR', KEYS[1])")
ADD = script("redis.call('SADD', KEYS[1], ARGV[1]) return ARGV[1]")


def incr(key: str = "count") -> Call[int]:
    """A call that must not be repeated automatically."""
    return Call(INCR, (key,), (), decode=int)


def add(member: str, key: str = "members") -> Call[str]:
    """A repeatable call whose reply identifies it."""
    return Call(ADD, (key,), (member,), decode=bytes.decode, repeatable=True)


def echo(text: bytes) -> Call[bytes]:
    return Call("ECHO", (), (text,), decode=bytes, repeatable=True)


def get(key: str) -> Call[bytes | None]:
    return Call("GET", (key,), (), decode=lambda reply: reply, repeatable=True)
