"""Cheap reads of a GOMQ key for whoever monitors it. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.bulk import scan
from tambomq.store.call import Call, load_script

MAX_PEERS: Final = 200
"""Peers of one key that are looked at: a script blocks the server."""

MAX_SIZED_PEERS: Final = 20
"""Peers of one key whose queues are weighed."""

_RECEIVERS: Final = load_script("tambomq.gomq.bulk", "receivers")


class Receiver(msgspec.Struct, frozen=True):
    """A peer that receives a key."""

    consumer: str
    peer: str
    waiting: int
    """Messages of the key in its dedicated queue."""
    last_action_ms: int | None
    handed: int
    """Messages of the key that were handed out and are not acknowledged."""


class Receivers(msgspec.Struct, frozen=True):
    """The peers that receive a key."""

    rows: list[Receiver]
    cut_off: bool
    """Whether there are more."""


def length(key: str) -> Call[int]:
    """Return the length of the main queue."""
    return scan.length(keys.queue(key))


def dispatched(key: str) -> Call[int]:
    """Return how many messages of *key* were copied to the peers so far."""
    return Call("HGET", (keys.tally(key),), ("dispatched",), _whole, repeatable=True)


def receivers(key: str) -> Call[Receivers]:
    """Return the first peers of *key*; keys that cannot be read count as empty."""
    prefixes = (keys.PEERS, keys.lists(key), keys.LASTACTION, keys.HANDED)
    args = (*prefixes, key, MAX_PEERS)
    return Call(_RECEIVERS, (keys.consumers(key),), args, _receivers, repeatable=True)


def sized_keys(key: str, receivers: Sequence[Receiver] = ()) -> tuple[str, ...]:
    """Return the keys that hold messages: the main queue, and those of the first peers."""
    first = receivers[:MAX_SIZED_PEERS]
    return (keys.queue(key), *(keys.messages(key, row.consumer, row.peer) for row in first))


def _receivers(reply: list[Any]) -> Receivers:
    cut_off, *cells = reply
    rows = zip(*(iter(cells),) * 5, strict=True)
    return Receivers(
        [
            Receiver(_text(consumer), _text(peer), int(waiting), _milliseconds(last), int(handed))
            for consumer, peer, waiting, last, handed in rows
        ],
        bool(cut_off),
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _milliseconds(time_s: bytes) -> int | None:
    try:
        return int(float(time_s) * 1000) if time_s else None
    except (ValueError, OverflowError):
        return None


def _whole(value: bytes | None) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0
