"""What it takes Redis when many peers of GOMQ leave at once, and much was owed to them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.players.gomq_frames import MARK
from tambomq.gomq import keys, leave_ops, ops
from tambomq.gomq.model import Options
from tambomq.store.call import Call
from tambomq.store.sync import Store

_KEY = f"{MARK}left"
_BODY = b"x" * 100
_PAGE = 500
# What is faster is not told, and counts as this.
_SLOW_US = 1000


def leave(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let peers fall silent, one of them with a backlog of its own; how long scripts took."""
    store = Store(order["url"])
    consumers = [f"{MARK}{n}" for n in range(order["consumers"])]
    seats = [(who, f"{MARK}{n}") for who in consumers for n in range(order["peers"])]
    _come(store, seats, order["owed"])
    store.run(_call("CONFIG", "SET", "slowlog-log-slower-than", _SLOW_US))
    store.run(_call("CONFIG", "SET", "slowlog-max-len", 100_000))
    store.run(_call("SLOWLOG", "RESET"))
    began, left, returned = time.perf_counter(), 0, 0
    for consumer in consumers:
        done = store.follow(leave_ops.reap(consumer, Options()))
        left, returned = left + done.peers, returned + done.returned
    took_s = time.perf_counter() - began
    slowest = max(_scripts(store), default=_SLOW_US)
    if (left, returned) != (len(seats), order["owed"]):
        raise RuntimeError(f"{left} of {len(seats)} left, {returned} messages went back")
    store.close()
    return {"rate": (left + returned) / took_s, "took": took_s, "script": slowest / 1000}


def _come(store: Store, seats: list[tuple[str, str]], owed: int) -> None:
    for first in range(0, len(seats), _PAGE):
        some = seats[first : first + _PAGE]
        store.run_all([ops.subscribe(_KEY, *seat, Options()) for seat in some])
    for first in range(0, owed, 10_000):
        some_owed = min(10_000, owed - first)
        queue = keys.messages(_KEY, *seats[0])
        store.run(_call("RPUSH", queue, *[_BODY] * some_owed))
    store.run(_call("HSET", keys.tally(_KEY), "dispatched", owed))
    # The first was there from the beginning, the others came when all was dispatched.
    for first in range(0, len(seats), _PAGE):
        some = seats[first : first + _PAGE]
        since = [_since(seat, 0 if seat == seats[0] else owed) for seat in some]
        store.run_all([*since, *(_silent(peer) for _, peer in some)])


def _since(seat: tuple[str, str], number: int) -> Call[Any]:
    return _call("HSET", keys.tally(_KEY), keys.messages(_KEY, *seat), number)


def _silent(peer: str) -> Call[Any]:
    return _call("SET", keys.last_action(peer), 1)


def _scripts(store: Store) -> Iterator[int]:
    for entry in store.run(_call("SLOWLOG", "GET", 100_000)):
        if entry[3][0].upper().startswith(b"EVAL"):
            yield entry[2]


def _call(verb: str, *words: Any) -> Call[Any]:
    return Call(verb, (), words, decode=lambda reply: reply)
