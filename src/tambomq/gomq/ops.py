"""What GOMQ asks of Redis, as calls nobody has made yet.

A message goes from its main queue to the dedicated queues of all who are to receive it in one
atomic step, and from there to its reader in another. None is ever in neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.store.call import Arg, Call, Script, load_script

COPIES: Final = 20_000
"""One dispatch makes about so many copies, in some 5 ms; others wait no longer than that."""
BYTES: Final = 4 << 20
"""One dispatch reads about so much of the main queue."""
PENDING: Final = 500
KEEP: Final = 10
"""The time of a peer's last action is kept for so many timeouts."""


def _load(name: str, *parts: str) -> Script:
    return load_script("tambomq.gomq", name, *parts)


_DISPATCH = _load("dispatch")
_PUBLISH_ALL = _load("publish_all")
_SUBSCRIBE = _load("subscribe", "join")
_UNSUBSCRIBE = _load(
    "unsubscribe", "lists", "put_back", "kept", "unhand", "seen", "witness", "leave"
)
_OBSERVE = _load("observe", "join", "put_back", "kept", "unhand", "take")
_OBSERVE_KEPT = _load("observe_kept", "join", "put_back", "kept", "take")
_GIVE_BACK = _load("give_back")
_REAP = _load("reap", "lists", "put_back", "kept", "unhand", "seen", "witness", "leave")
_PENDING = _load("pending", "lists")


class Dispatched(msgspec.Struct, frozen=True):
    """What one dispatch did."""

    moved: int
    left: int
    """What the main queue still holds."""
    peers: int
    """Who received each of them."""


class Found(msgspec.Struct, frozen=True):
    """What waited for a peer."""

    subscriptions: int
    """How many keys its consumer is subscribed to."""
    is_new: bool
    """Whether the peer was not known before."""
    messages: list[tuple[bytes, list[bytes]]]
    """Of each key, in the order of their publishing."""
    batch: str = ""
    """What to acknowledge, where that was asked for."""


class Reaped(msgspec.Struct, frozen=True):
    """What became of silent peers."""

    peers: int
    returned: int
    """Messages that nobody else had received or will receive: they are in their main queue."""


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


def dispatch(key: str) -> Call[Dispatched]:
    """Move the first messages of *key* to all who are to receive them."""
    return Call(
        _DISPATCH,
        (keys.queue(key), keys.consumers(key), keys.tally(key)),
        (keys.PEERS, keys.lists(key), keys.CHANNEL, COPIES, BYTES),
        decode=lambda reply: Dispatched(*reply),
    )


def subscribe(key: str, consumer: str, peer: str, options: Options) -> Call[bool]:
    """Let *consumer* and *peer* receive *key*; false when the consumer already did."""
    return Call(
        _SUBSCRIBE,
        (
            keys.consumers(key),
            keys.subscriptions(consumer),
            keys.peers(consumer),
            keys.SUBSCRIBED_KEYS,
            keys.tally(key),
            keys.last_action(peer),
        ),
        (
            key,
            consumer,
            peer,
            keys.queue(key),
            keys.MESSAGES,
            keys.TALLY,
            _keep_s(options),
            keys.channel(consumer),
        ),
        decode=bool,
        repeatable=True,
    )


def unsubscribe(key: str, consumer: str, acked: str = "") -> Call[int | None]:
    """Let *consumer* receive *key* no more; `None` when it did not.

    What only its peers were owed goes back to the main queue; the result says how much.
    """
    return Call(
        _UNSUBSCRIBE,
        (
            keys.queue(key),
            keys.consumers(key),
            keys.tally(key),
            keys.subscriptions(consumer),
            keys.peers(consumer),
            keys.SUBSCRIBED_KEYS,
        ),
        (
            key,
            consumer,
            acked,
            keys.PEERS,
            keys.MESSAGES,
            keys.HANDED,
            keys.channel(consumer),
        ),
        decode=lambda reply: None if reply < 0 else int(reply),
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
        decode=_found,
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
        decode=_found,
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


def pending() -> Call[list[str]]:
    """Return the keys with messages that somebody is there to receive."""
    return Call(
        _PENDING,
        (keys.SUBSCRIBED_KEYS,),
        (keys.QUEUE, keys.CONSUMERS, keys.PEERS, PENDING),
        decode=names,
        repeatable=True,
    )


def reap(consumer: str, options: Options) -> Call[Reaped]:
    """Disconnect the peers of *consumer* that have been silent for too long."""
    return Call(
        _REAP,
        (keys.subscriptions(consumer), keys.peers(consumer)),
        (
            consumer,
            options.peer_timeout_s,
            _keep_s(options),
            keys.QUEUE,
            keys.CONSUMERS,
            keys.PEERS,
            keys.MESSAGES,
            keys.TALLY,
            keys.LASTACTION,
            keys.HANDED,
        ),
        decode=lambda reply: Reaped(*reply),
        repeatable=True,
    )


def _keep_s(options: Options) -> int:
    return max(60, round(KEEP * options.peer_timeout_s))


def _observed_keys(consumer: str, peer: str) -> tuple[str, ...]:
    return (
        keys.subscriptions(consumer),
        keys.peers(consumer),
        keys.last_action(peer),
        keys.handed(consumer, peer),
    )


def _observed_args(
    consumer: str, peer: str, options: Options, turn: int, limit: int | None
) -> tuple[Arg, ...]:
    most = options.observe_limit if limit is None else min(limit, options.observe_limit)
    room = options.max_message_bytes
    return (consumer, peer, most, room, turn, _keep_s(options), keys.MESSAGES, keys.TALLY)


def names(reply: list[bytes]) -> list[str]:
    """Return the names that gRPC could have brought: text."""
    texts = (name.decode(errors="replace") for name in reply)
    return [text for text, name in zip(texts, reply, strict=True) if text.encode() == name]


def _found(reply: Any) -> Found:
    count, is_new, taken, *batch = reply
    pairs = zip(taken[::2], taken[1::2], strict=True)
    return Found(count, bool(is_new), list(pairs), batch[0].decode() if batch else "")
