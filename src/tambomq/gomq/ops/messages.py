"""The Redis operations of GOMQ messages: publish, dispatch, subscribe, observe.

A message moves from its main queue to the dedicated queues of all its receivers in one atomic step,
and from there to its reader in another. It is always in one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.errors import LimitReached
from tambomq.gomq import keys
from tambomq.gomq.model import MAX_BACKLOG, Options
from tambomq.store.call import Arg, Call, Plan, Script, load_script, results

MAX_COPIES: Final = 20_000
"""Copies made by one dispatch, approximately: about 5 ms in which Redis is blocked."""
MAX_DISPATCH_BYTES: Final = 4 << 20
"""Bytes of the main queue read by one dispatch, approximately."""
FULL_COPIES: Final = 64
"""Copies made by a dispatch while memory is full, and the most that wait for a receiver then."""
FULL_BYTES: Final = 256 << 10
PENDING_PAGE: Final = 500
"""Main queues checked by one call of `pending`, approximately."""
MAX_RECEIVERS: Final = 5000
"""Peers, and consumers, that a key may have: a dispatch writes to all of them at once."""
BACKLOG_HOLD_MS: Final = 1000
"""A backlog is held for this long after the first Subscribe, so that others can subscribe and share
it; an Observe ends this."""
TRIM_CHUNK: Final = 5000
"""Messages that one script removes at most: a script blocks the server."""
KEEP_TIMEOUTS: Final = 10
"""The time of a peer's last action expires after this many peer timeouts."""


_DISPATCH = load_script("tambomq.gomq.ops", "dispatch")
_DISPATCH_WHEN_FULL = load_script("tambomq.gomq.ops", "dispatch", when_full=True)
_PUBLISH_ALL = load_script("tambomq.gomq.ops", "publish_all")
_SUBSCRIBE = load_script("tambomq.gomq.ops", "subscribe")
_OBSERVE = load_script("tambomq.gomq.ops", "observe")
_OBSERVE_KEPT = load_script("tambomq.gomq.ops", "observe_kept")
_GIVE_BACK = load_script("tambomq.gomq.ops", "give_back")
_PENDING = load_script("tambomq.gomq.ops", "pending")
_TRIM = load_script("tambomq.gomq.ops", "trim_backlog")


class DispatchResult(msgspec.Struct, frozen=True):
    """The result of one dispatch."""

    moved: int
    left: int
    """Messages that remain in the main queue."""
    peers: int
    """Receivers of each; 0 while the backlog is held, or a receiver has too long a queue."""
    is_unsettled: bool = False
    """Whether messages of departed peers must be settled first: see `leave_ops.settle`."""


class ObserveResult(msgspec.Struct, frozen=True):
    """The messages that waited for a peer."""

    subscriptions: int
    """Keys that its consumer is subscribed to."""
    is_due: bool
    """Whether to dispatch now: the peer is new, or a held backlog is released."""
    messages: list[tuple[bytes, list[bytes]]]
    """For each key its messages, in the order of publishing."""
    batch: str = ""
    """The batch to acknowledge; empty if the client does not acknowledge."""


def push(key: str, elements: Sequence[bytes]) -> Call[int]:
    """Append *elements* to the main queue."""
    return Call("RPUSH", (keys.queue(key),), tuple(elements), decode=int)


def push_all(batches: Mapping[str, Sequence[bytes]]) -> Call[int]:
    """Append to several main queues, or to none of them."""
    args: list[Arg] = []
    for elements in batches.values():
        args += (len(elements), *elements)
    queues = tuple(keys.queue(key) for key in batches)
    return Call(_PUBLISH_ALL, queues, tuple(args), decode=int)


def backlog(key: str) -> Call[int]:
    """Return the length of the main queue."""
    return Call("LLEN", (keys.queue(key),), (), decode=int, repeatable=True)


def trim_backlog(key: str, count: int) -> Plan[int]:
    """Remove up to *count* messages of the main queue, the oldest first; return how many.

    Copies that were dispatched to peers stay.
    """
    removed = 0
    while removed < count:
        args = (min(TRIM_CHUNK, count - removed),)
        some: int = results((yield (Call(_TRIM, (keys.queue(key),), args, decode=int),)))[0]
        removed += some
        if not some:
            break
    return removed


def dispatch(
    key: str, *, observed: bool = False, max_backlog: int = MAX_BACKLOG
) -> Call[DispatchResult]:
    """Move the first messages of *key* to all its receivers.

    Nothing is moved while the backlog is held, unless a receiver has *observed*, or while
    *max_backlog* messages wait for one receiver.
    """
    hold_ms = 0 if observed else BACKLOG_HOLD_MS
    return _dispatch(_DISPATCH, key, MAX_COPIES, MAX_DISPATCH_BYTES, hold_ms, max_backlog)


def dispatch_when_full(key: str) -> Call[DispatchResult]:
    """Move a few messages of *key* although memory is full: receivers free what they observe."""
    return _dispatch(
        _DISPATCH_WHEN_FULL, key, FULL_COPIES, FULL_BYTES, BACKLOG_HOLD_MS, FULL_COPIES
    )


def _dispatch(
    script: Script, key: str, copies: int, size: int, hold_ms: int, max_backlog: int
) -> Call[DispatchResult]:
    return Call(
        script,
        (keys.queue(key), keys.consumers(key), keys.tally(key), keys.HELD),
        (keys.PEERS, keys.lists(key), keys.CHANNEL, copies, size, key, hold_ms, max_backlog),
        decode=lambda reply: DispatchResult(reply[0], reply[1], reply[2], bool(reply[3])),
    )


def subscribe(
    key: str, consumer: str, peer: str, options: Options, *, hold_ms: int = 0
) -> Call[bool | None]:
    """Subscribe *consumer* with *peer* to *key*; false if the consumer was subscribed already.

    For the first receiver, the backlog is held for *hold_ms* (at most `BACKLOG_HOLD_MS`). `None`:
    its last unsubscription is not settled yet; run `leave_ops.settle`, and repeat the call.
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
            last_action_ttl_s(options),
            keys.channel(consumer),
            *(options.max_peers, options.max_keys, MAX_RECEIVERS),
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
) -> Call[ObserveResult]:
    """Pop the messages that wait for *peer*. *turn* rotates which key comes first.

    A batch that was delivered before and is not *acked* is queued again.
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
) -> Call[ObserveResult]:
    """Deliver the messages that wait for *peer* as *batch*, and keep them until acknowledged.

    The last batch is delivered again unless *acked* is its name.
    """
    return Call(
        _OBSERVE_KEPT,
        _observed_keys(consumer, peer),
        (*_observed_args(consumer, peer, options, turn, limit), acked, batch),
        decode=partial(_found, consumer, options),
        # A repeated call delivers the batch that was kept by the first.
        repeatable=True,
    )


def give_back(consumer: str, peer: str, popped: ObserveResult) -> Call[int]:
    """Queue popped messages for *peer* again, if it still receives their keys; return how many."""
    args: list[Arg] = []
    for key, messages in popped.messages:
        args += (key, len(messages), *messages)
    redis_keys = keys.peers(consumer), keys.subscriptions(consumer)
    return Call(_GIVE_BACK, redis_keys, (consumer, peer, keys.MESSAGES, *args), decode=int)


def pending(cursor: bytes = b"0") -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor, and those of a page of keys that have messages and receivers.

    The cursor is ``0`` after the last page.
    """
    return Call(
        _PENDING,
        (keys.SUBSCRIBED_KEYS,),
        (cursor, PENDING_PAGE, keys.QUEUE, keys.CONSUMERS, keys.PEERS),
        decode=lambda reply: (reply[0], names(reply[1])),
        repeatable=True,
    )


def last_action_ttl_s(options: Options) -> int:
    """Return the time to live of a peer's last action, in seconds."""
    return max(60, round(KEEP_TIMEOUTS * options.peer_timeout_s))


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
    count = options.observe_limit if limit is None else min(limit, options.observe_limit)
    limits = (options.max_peers, MAX_RECEIVERS)
    rest = (turn, last_action_ttl_s(options), keys.MESSAGES, keys.TALLY)
    return (consumer, peer, count, options.max_message_bytes, *rest, *limits)


def names(reply: list[bytes]) -> list[str]:
    """Return the names that are valid UTF-8; gRPC can carry no others."""
    texts = (name.decode(errors="replace") for name in reply)
    return [text for text, name in zip(texts, reply, strict=True) if text.encode() == name]


def _subscribed(key: str, consumer: str, options: Options, reply: int | bytes) -> bool | None:
    if isinstance(reply, bytes):
        raise _limit_reached(reply, consumer, options, key)
    return None if reply < 0 else bool(reply)


def _found(consumer: str, options: Options, reply: Any) -> ObserveResult:
    if isinstance(reply, bytes):
        raise _limit_reached(reply, consumer, options)
    subscriptions, is_due, messages, *batch = reply
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return ObserveResult(
        subscriptions, bool(is_due), list(pairs), batch[0].decode() if batch else ""
    )


def _limit_reached(limit: bytes, consumer: str, options: Options, key: str = "") -> LimitReached:
    if limit == b"peers":
        return LimitReached(f"consumer {consumer!r}", options.max_peers, "peers")
    if limit == b"keys":
        return LimitReached(f"consumer {consumer!r}", options.max_keys, "keys")
    owner = f"key {key!r}" if key else f"a key of consumer {consumer!r}"
    return LimitReached(owner, MAX_RECEIVERS, "peers or consumers")
