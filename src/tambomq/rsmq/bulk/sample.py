"""Cheap reads of an RSMQ queue for whoever monitors it. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tambomq.errors import StoreUnavailable, TamboError
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys
from tambomq.rsmq.ops.replies import score_to_ms
from tambomq.store.call import Call, Outcome, load_script

CALLS: Final = 5
"""Calls of `sample`."""
LOOK_AT: Final = 100
"""Hidden messages that `hidden` looks at, from either end."""

_HIDDEN: Final = load_script("tambomq.rsmq.bulk", "hidden_sample")


class MessageSample(msgspec.Struct, frozen=True):
    """The numbers of a queue at one moment."""

    exists: bool
    depth: int
    hidden: int
    dead: int
    """Messages in the queue with the suffix ``-dead``."""
    first_ms: int | None
    """When the first message, hidden or not, is or became visible."""
    sent: int
    """Messages ever sent."""
    received: int
    """Receives ever, repeated ones included."""
    damaged: int
    """How many of its reads failed."""


def sample(keys: Keys, queue: str, now_ms: int) -> tuple[Call[Any], ...]:
    """Return the calls of which `read` makes a sample. *now_ms* is the server's time.

    Five commands cost Redis half as much as a script that makes them.
    """
    messages, data = keys.of(queue)
    return (
        Call("HMGET", (data,), ("vt", "totalsent", "totalrecv"), list, repeatable=True),
        Call("ZCARD", (messages,), (), int, repeatable=True),
        Call("ZCOUNT", (messages,), (f"({now_ms}", "+inf"), int, repeatable=True),
        Call("ZRANGE", (messages,), (0, 0, "WITHSCORES"), list, repeatable=True),
        Call("ZCARD", (keys.messages(queue + DEAD_SUFFIX),), (), int, repeatable=True),
    )


def read(outcomes: Sequence[Outcome]) -> MessageSample:
    """Return the sample; a read that failed counts as empty. Raises `StoreUnavailable`."""
    for outcome in outcomes:
        if isinstance(outcome, StoreUnavailable):
            raise outcome
    damaged = sum(isinstance(outcome, TamboError) for outcome in outcomes)
    values = [None if isinstance(outcome, TamboError) else outcome for outcome in outcomes]
    vt, sent, received = values[0] or (None, None, None)
    first = values[3]
    return MessageSample(
        exists=vt is not None or isinstance(outcomes[0], TamboError),
        depth=values[1] or 0,
        hidden=values[2] or 0,
        dead=values[4] or 0,
        first_ms=score_to_ms(first[1]) if first else None,
        sent=_whole(sent),
        received=_whole(received),
        damaged=damaged,
    )


def hidden(keys: Keys, queue: str, now_ms: int) -> Call[tuple[int, int]]:
    """Return how many hidden messages were looked at, and how many were received before."""
    return Call(_HIDDEN, keys.of(queue), (now_ms, LOOK_AT), tuple, repeatable=True)


def sized_keys(keys: Keys, queue: str) -> tuple[str, ...]:
    """Return the keys that hold nearly all of a queue's memory."""
    return keys.all_of(queue)


def _whole(value: bytes | None) -> int:
    try:
        return int(float(value or 0))
    except (ValueError, OverflowError):
        return 0
