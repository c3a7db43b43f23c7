"""Moves of messages between queues, which may be on different servers, exactly once.

A *batch* leaves its queue in one script, which stores it in a list, the *transit*, until it has
arrived. The target queue stores a batch and its number in one script, so a batch that is sent
again is not stored again. Then the transit is deleted. A process that dies in between leaves one
batch in transit, and the next run of the same move starts with it. The number that the target
stores, its *fence*, does not expire until the source has deleted the move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tambomq.store.call import Call, load_script

MAX_MESSAGES: Final = 1000
MAX_BYTES: Final = 1 << 20
"""Limits of a batch (bytes approximate): its script blocks Redis for 5 to 10 ms."""
KEEP_S: Final = 7 * 24 * 3600
"""How long the target keeps the fence of a finished move; that of an unfinished one is kept."""
MODULUS: Final = 1 << 48

_ARRIVED = load_script("tambomq.bulk", "move_arrived")
_OVER = load_script("tambomq.bulk", "move_over")


class MoveBatch(msgspec.Struct, frozen=True):
    """Messages in transit."""

    run: str
    """The unique name of the move."""
    number: int
    """From 1 on."""
    skipped: int
    """How many of the messages examined stay in their queue."""
    rows: list[tuple[bytes, bytes]]
    """Each a protocol-specific header, and a body."""


class Tally(msgspec.Struct, frozen=True):
    """A count of messages, and an order-independent checksum of their bodies."""

    count: int = 0
    sum: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, (self.sum + other.sum) % MODULUS)


class ArrivalRecord(msgspec.Struct, frozen=True):
    """What the target queue has stored of a move."""

    last: int = 0
    """The number of the last batch, or the position of the last row."""
    checksum: str = ""
    """Of the positions up to there; stored in the field ``mark``."""
    tally: Tally = Tally()


def tally(bodies: Iterable[bytes]) -> Tally:
    """Return the tally of *bodies*, computed as the storing scripts do."""
    count = total = 0
    for body in bodies:
        count += 1
        # Detects loss and corruption, not attacks: SHA-1 is what Lua in Redis offers.
        total += int(hashlib.sha1(body, usedforsecurity=False).hexdigest()[:12], 16)
    return Tally(count, total % MODULUS)


def batch(reply: Sequence[Any]) -> MoveBatch:
    """Return the batch that a script has taken, or found in transit."""
    run, number, skipped, words = reply
    pairs = list(zip(words[::2], words[1::2], strict=True))
    return MoveBatch(run.decode(), int(number), int(skipped), pairs)


def arrived(move: str, transit: str, number: int, batch_tally: Tally) -> Call[bool]:
    """Delete batch *number*, which has arrived, from the transit; false if it was before."""
    args = (number, batch_tally.count, batch_tally.sum)
    return Call(_ARRIVED, (move, transit), args, bool, repeatable=True)


def over(move: str, transit: str, run: str) -> Call[bool]:
    """Delete the finished move *run*; false if a batch is in transit, or another move has begun."""
    return Call(_OVER, (move, transit), (run,), bool, repeatable=True)


def done(fence: str) -> Call[bool]:
    """Let the target's fence of a finished move expire after `KEEP_S`."""
    return Call("EXPIRE", (fence,), (KEEP_S,), bool, repeatable=True)


def left(move: str) -> Call[Tally]:
    """Return the tally of messages that have left and arrived."""
    return Call("HMGET", (move,), ("count", "sum"), _tally, repeatable=True)


def arrivals(fence: str) -> Call[ArrivalRecord]:
    """Return what the target queue has stored of a move."""
    fields = ("last", "mark", "count", "sum")
    return Call("HMGET", (fence,), fields, _arrivals, repeatable=True)


def _tally(reply: Sequence[bytes | None]) -> Tally:
    return Tally(*(int(each or 0) for each in reply))


def _arrivals(reply: Sequence[bytes | None]) -> ArrivalRecord:
    last, checksum, *rest = reply
    return ArrivalRecord(int(last or 0), (checksum or b"").decode(), _tally(rest))
