"""Overviews of GOMQ: keys, consumers, peers and queue lengths. Nothing here writes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tambomq.errors import WrongType
from tambomq.gomq import keys
from tambomq.gomq.ops.messages import names
from tambomq.store.call import Call, Plan, results

PAGE: Final = 1000


class ConsumerOverview(msgspec.Struct, frozen=True):
    """A consumer that is subscribed to a key."""

    name: str
    peers: dict[str, int | None]
    """By peer, the length of its dedicated queue; `None` if the key holds no list."""


class KeyOverview(msgspec.Struct, frozen=True):
    """A key and its consumers."""

    name: str
    waiting: int | None
    """The length of the main queue; `None` if the key holds no list."""
    consumers: list[ConsumerOverview]


def ping() -> Call[object]:
    """Return anything, if the server answers."""
    return Call("PING", (), (), decode=lambda reply: reply, repeatable=True)


def server_s() -> Call[float]:
    """Return the time by the server's clock, in seconds."""
    return Call("TIME", (), (), lambda reply: int(reply[0]) + int(reply[1]) / 1e6, repeatable=True)


def subscribed(consumer: str) -> Call[list[str]]:
    """Return the keys that *consumer* is subscribed to."""
    return _members(keys.subscriptions(consumer))


def all_consumers() -> Plan[list[str]]:
    """Return all consumers with a subscription, sorted."""
    found: set[str] = set()
    cursor = b"0"
    while True:
        cursor, queues = results((yield (_subscribed(cursor),)))[0]
        each = yield from _each([_members(keys.consumers(_key_of(q))) for q in names(queues)])
        found.update(name for consumers in each for name in consumers or ())
        if cursor == b"0":
            return sorted(found)


def overview() -> Plan[list[KeyOverview]]:
    """Return every key with messages or subscribers, sorted by name."""
    queues = set(results((yield (_members(keys.SUBSCRIBED_KEYS),)))[0])
    cursor = b"0"
    while True:
        cursor, page = results((yield (_scan(cursor),)))[0]
        queues.update(names(page))
        if cursor == b"0":
            break
    found = [_key_of(queue) for queue in sorted(queues)]
    waiting = yield from _each([_length(keys.queue(key)) for key in found])
    consumers = yield from _each([_members(keys.consumers(key)) for key in found])
    all_names = sorted({name for each in consumers for name in each or ()})
    members = yield from _each([_members(keys.peers(name)) for name in all_names])
    peers = {name: sorted(found or ()) for name, found in zip(all_names, members, strict=True)}
    table = []
    for key, count, subscribers in zip(found, waiting, consumers, strict=True):
        rows = [(name, peer) for name in sorted(subscribers or ()) for peer in peers[name]]
        lengths = yield from _each([_length(keys.messages(key, *row)) for row in rows])
        owed = dict(zip(rows, lengths, strict=True))
        table.append(
            KeyOverview(
                key,
                count,
                [
                    ConsumerOverview(name, {peer: owed[name, peer] for peer in peers[name]})
                    for name in sorted(subscribers or ())
                ],
            )
        )
    return table


def _each(calls: list[Call[Any]]) -> Plan[list[Any]]:
    """Make *calls* in pages; a key of another type gives `None`."""
    replies: list[Any] = []
    for first in range(0, len(calls), PAGE):
        outcomes = yield calls[first : first + PAGE]
        replies += results([None if isinstance(o, WrongType) else o for o in outcomes])
    return replies


def _members(key: str) -> Call[list[str]]:
    return Call("SMEMBERS", (key,), (), decode=names, repeatable=True)


def _length(key: str) -> Call[int]:
    return Call("LLEN", (key,), (), decode=int, repeatable=True)


def _scan(cursor: bytes) -> Call[tuple[bytes, list[bytes]]]:
    words = (cursor, "MATCH", f"{keys.QUEUE}*", "COUNT", PAGE)
    return Call("SCAN", (), words, decode=tuple, repeatable=True)


def _subscribed(cursor: bytes) -> Call[tuple[bytes, list[bytes]]]:
    words = (cursor, "COUNT", PAGE)
    return Call("SSCAN", (keys.SUBSCRIBED_KEYS,), words, decode=tuple, repeatable=True)


def _key_of(queue: str) -> str:
    return queue.removeprefix(keys.QUEUE)
