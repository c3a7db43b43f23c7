"""The cost for Redis of many GOMQ peers that leave at once with undelivered messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.players.gomq_frames import PREFIX
from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.call import Call
from tambomq.store.sync import Store

_KEY = f"{PREFIX}left"
_BODY = b"x" * 100
_PAGE = 500
# Faster scripts are not in the slow log, and count as this.
_SLOW_US = 1000


def leave(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Disconnect peers, one of them with a backlog of its own; return how long scripts took."""
    store = Store(order["url"])
    consumers = [f"{PREFIX}{n}" for n in range(order["consumers"])]
    members = [(consumer, f"{PREFIX}{n}") for consumer in consumers for n in range(order["peers"])]
    _come(store, members, order["owed"])
    store.run(_call("CONFIG", "SET", "slowlog-log-slower-than", _SLOW_US))
    store.run(_call("CONFIG", "SET", "slowlog-max-len", 100_000))
    store.run(_call("SLOWLOG", "RESET"))
    began, left, returned = time.perf_counter(), 0, 0
    for consumer in consumers:
        done = store.follow(leave_ops.reap(consumer, Options()))
        left, returned = left + done.peers, returned + done.returned
    took_s = time.perf_counter() - began
    slowest = max(_scripts(store), default=_SLOW_US)
    if (left, returned) != (len(members), order["owed"]):
        raise RuntimeError(f"{left} of {len(members)} left, {returned} messages went back")
    store.close()
    return {"rate": (left + returned) / took_s, "took": took_s, "script": slowest / 1000}


def _come(store: Store, members: list[tuple[str, str]], owed: int) -> None:
    for first in range(0, len(members), _PAGE):
        some = members[first : first + _PAGE]
        store.run_all([message_ops.subscribe(_KEY, *member, Options()) for member in some])
    for first in range(0, owed, 10_000):
        some_owed = min(10_000, owed - first)
        queue = keys.messages(_KEY, *members[0])
        store.run(_call("RPUSH", queue, *[_BODY] * some_owed))
    store.run(_call("HSET", keys.tally(_KEY), "dispatched", owed))
    # The first was there from the beginning, the others came when all was dispatched.
    for first in range(0, len(members), _PAGE):
        some = members[first : first + _PAGE]
        since = [_since(member, 0 if member == members[0] else owed) for member in some]
        store.run_all([*since, *(_silent(peer) for _, peer in some)])


def _since(member: tuple[str, str], number: int) -> Call[Any]:
    return _call("HSET", keys.tally(_KEY), keys.messages(_KEY, *member), number)


def _silent(peer: str) -> Call[Any]:
    return _call("SET", keys.last_action(peer), 1)


def _scripts(store: Store) -> Iterator[int]:
    for entry in store.run(_call("SLOWLOG", "GET", 100_000)):
        if entry[3][0].upper().startswith(b"EVAL"):
            yield entry[2]


def _call(verb: str, *words: Any) -> Call[Any]:
    return Call(verb, (), words, decode=lambda reply: reply)
