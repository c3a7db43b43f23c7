"""What GOMQ asks of Redis, as calls nobody has made yet.

A message goes from its main queue to the dedicated queues of all who are to receive it in one
atomic step, and from there to its reader in another. None is ever in neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.errors import LimitReached
from tambomq.gomq import keys
from tambomq.gomq.model import MAX_BACKLOG, Options
from tambomq.store.call import Arg, Call, Script, load_script

COPIES: Final = 20_000
"""One dispatch makes about so many copies, in some 5 ms; others wait no longer than that."""
BYTES: Final = 4 << 20
"""One dispatch reads about so much of the main queue."""
PENDING: Final = 500
"""About so many main queues are looked at in one step."""
RECEIVERS: Final = 5000
"""A key has no more peers, and no more consumers: a dispatch goes to all of them at once."""
HOLD_MS: Final = 1000
"""So long those who subscribe share a backlog, unless one of them observes before."""
KEEP: Final = 10
"""The time of a peer's last action is kept for so many timeouts."""


def _load(name: str, *parts: str) -> Script:
    return load_script("tambomq.gomq", name, *parts)


_DISPATCH = _load("dispatch")
_PUBLISH_ALL = _load("publish_all")
_SUBSCRIBE = _load("subscribe", "join", "hold")
_OBSERVE = _load("observe", "join", "put_back", "kept", "unhand", "take", "release")
_OBSERVE_KEPT = _load("observe_kept", "join", "put_back", "kept", "take", "release")
_GIVE_BACK = _load("give_back")
_PENDING = _load("pending")


class Dispatched(msgspec.Struct, frozen=True):
    """What one dispatch did."""

    moved: int
    left: int
    """What the main queue still holds."""
    peers: int
    """Who received each of them; none while the backlog is held, or one of them has too many."""
    is_unsettled: bool = False
    """Whether nothing is moved until what leavers were owed is settled: see `leave_ops`."""


class Found(msgspec.Struct, frozen=True):
    """What waited for a peer."""

    subscriptions: int
    """How many keys its consumer is subscribed to."""
    is_due: bool
    """Whether the peer was not known before, or the backlog of a key was held: dispatch."""
    messages: list[tuple[bytes, list[bytes]]]
    """Of each key, in the order of their publishing."""
    batch: str = ""
    """What to acknowledge, where that was asked for."""


def push(key: str, elements: Sequence[bytes]) -> Call[int]:
    """Append *elements* to the main queue."""
    return Call("RPUSH", (keys.queue(key),), tuple(elements), decode=int)


def push_all(batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
    """Append to several main queues, or to none."""
    words: list[Arg] = []
    for elements in batches.values():
        words += (len(elements), *elements)
    queues = tuple(keys.queue(key) for key in batches)
    return Call(_PUBLISH_ALL, queues, tuple(words), decode=int)


def backlog(key: str) -> Call[int]:
    """Return how many messages are in the main queue."""
    return Call("LLEN", (keys.queue(key),), (), decode=int, repeatable=True)


def dispatch(
    key: str, *, observed: bool = False, max_backlog: int = MAX_BACKLOG
) -> Call[Dispatched]:
    """Move the first messages of *key* to all who are to receive them.

    A backlog that is held stays, unless one of them has *observed*. While *max_backlog* messages
    wait for one of them, all stay.
    """
    hold_ms = 0 if observed else HOLD_MS
    return Call(
        _DISPATCH,
        (keys.queue(key), keys.consumers(key), keys.tally(key), keys.HELD),
        (keys.PEERS, keys.lists(key), keys.CHANNEL, COPIES, BYTES, key, hold_ms, max_backlog),
        decode=lambda reply: Dispatched(reply[0], reply[1], reply[2], bool(reply[3])),
    )


def subscribe(
    key: str, consumer: str, peer: str, options: Options, *, hold_ms: int = 0
) -> Call[bool | None]:
    """Let *consumer* and *peer* receive *key*; false when the consumer already did.

    If nobody received it before, its backlog is held for *hold_ms* (at most `HOLD_MS`).
    `None`: what it was owed when it unsubscribed is not settled; `leave_ops.settle`, and ask again.
    Raises `LimitReached`.
    """
    return Call(
        _SUBSCRIBE,
        (
            keys.consumers(key),
            keys.subscriptions(consumer),
            keys.peers(consumer),
            keys.SUBSCRIBED_KEYS,
            keys.tally(key),
            keys.last_action(peer),
            keys.unsubscribed(key),
            keys.queue(key),
            keys.HELD,
        ),
        (
            key,
            consumer,
            peer,
            keys.MESSAGES,
            keys.TALLY,
            keep_s(options),
            keys.channel(consumer),
            *(options.max_peers, options.max_keys, RECEIVERS),
            keys.PEERS,
            hold_ms,
        ),
        decode=partial(_subscribed, key, consumer, options),
        repeatable=True,
    )


def observe(
    consumer: str,
    peer: str,
    options: Options,
    *,
    acked: str = "",
    turn: int = 0,
    limit: int | None = None,
) -> Call[Found]:
    """Pop what waits for *peer*. *turn* says which of its keys is the first.

    What was handed out before and is not *acked* waits again.
    """
    return Call(
        _OBSERVE,
        _observed_keys(consumer, peer),
        (*_observed_args(consumer, peer, options, turn, limit), acked),
        decode=partial(_found, consumer, options),
    )


def observe_kept(
    consumer: str,
    peer: str,
    options: Options,
    *,
    acked: str,
    batch: str,
    turn: int = 0,
    limit: int | None = None,
) -> Call[Found]:
    """Hand out what waits for *peer* under the name *batch*, and keep it until acknowledged.

    What was handed out before is handed out again unless *acked* is its name.
    """
    return Call(
        _OBSERVE_KEPT,
        _observed_keys(consumer, peer),
        (*_observed_args(consumer, peer, options, turn, limit), acked, batch),
        decode=partial(_found, consumer, options),
        # Repeated, it hands out what it has just kept.
        repeatable=True,
    )


def give_back(consumer: str, peer: str, found: Found) -> Call[int]:
    """Let what was popped wait for *peer* again, as far as it is still to receive it.

    The result says how many messages do.
    """
    words: list[Arg] = []
    for key, messages in found.messages:
        words += (key, len(messages), *messages)
    args = (consumer, peer, keys.MESSAGES, *words)
    owners = keys.peers(consumer), keys.subscriptions(consumer)
    return Call(_GIVE_BACK, owners, args, decode=int)


def pending(cursor: bytes = b"0") -> Call[tuple[bytes, list[str]]]:
    """Of some keys, return those with messages that somebody is there to receive.

    Returns where to go on, too; the last page goes on at ``0``.
    """
    return Call(
        _PENDING,
        (keys.SUBSCRIBED_KEYS,),
        (cursor, PENDING, keys.QUEUE, keys.CONSUMERS, keys.PEERS),
        decode=lambda reply: (reply[0], names(reply[1])),
        repeatable=True,
    )


def keep_s(options: Options) -> int:
    """For how long the time of a peer's last action is kept."""
    return max(60, round(KEEP * options.peer_timeout_s))


def _observed_keys(consumer: str, peer: str) -> tuple[str, ...]:
    return (
        keys.subscriptions(consumer),
        keys.peers(consumer),
        keys.last_action(peer),
        keys.handed(consumer, peer),
        keys.HELD,
    )


def _observed_args(
    consumer: str, peer: str, options: Options, turn: int, limit: int | None
) -> tuple[Arg, ...]:
    most = options.observe_limit if limit is None else min(limit, options.observe_limit)
    limits = (options.max_peers, RECEIVERS)
    place = (turn, keep_s(options), keys.MESSAGES, keys.TALLY)
    return (consumer, peer, most, options.max_message_bytes, *place, *limits)


def names(reply: list[bytes]) -> list[str]:
    """Return the names that gRPC could have brought: text."""
    texts = (name.decode(errors="replace") for name in reply)
    return [text for text, name in zip(texts, reply, strict=True) if text.encode() == name]


def _subscribed(key: str, consumer: str, options: Options, reply: int | bytes) -> bool | None:
    if isinstance(reply, bytes):
        raise _too_many(reply, consumer, options, key)
    return None if reply < 0 else bool(reply)


def _found(consumer: str, options: Options, reply: Any) -> Found:
    if isinstance(reply, bytes):
        raise _too_many(reply, consumer, options)
    count, is_due, taken, *batch = reply
    pairs = zip(taken[::2], taken[1::2], strict=True)
    return Found(count, bool(is_due), list(pairs), batch[0].decode() if batch else "")


def _too_many(what: bytes, consumer: str, options: Options, key: str = "") -> LimitReached:
    if what == b"peers":
        return LimitReached(f"consumer {consumer!r}", options.max_peers, "peers")
    if what == b"keys":
        return LimitReached(f"consumer {consumer!r}", options.max_keys, "keys")
    whose = f"key {key!r}" if key else f"a key of consumer {consumer!r}"
    return LimitReached(whose, RECEIVERS, "peers or consumers")
