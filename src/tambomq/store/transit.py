"""How messages go from one queue to another, which may be on another server, each of them once.

A *batch* leaves its queue in one script, and stands in a list, the *transit*, until it has
arrived. The queue it goes to takes a batch and writes down its number in one script, so a batch
that is brought again is not taken again. Then the transit is forgotten. Whoever dies in between
leaves one batch in transit: the next who makes the same move begins with it. What the target wrote
down, the *fence*, has no time limit until the source has forgotten the move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tambomq.store.call import Call, load_script

BATCH: Final = 1000
ROOM: Final = 1 << 20
"""Messages of a batch, and about how many bytes: others wait 5 to 10 ms for it."""
KEEP_S: Final = 7 * 24 * 3600
"""For how long a queue remembers a move after its end. While it is under way there is no limit."""
MODULUS: Final = 1 << 48

_ARRIVED = load_script("tambomq.store", "move_arrived")
_OVER = load_script("tambomq.store", "move_over")


class Batch(msgspec.Struct, frozen=True):
    """What is on its way."""

    run: str
    """The name of the move: nobody else's."""
    number: int
    """From 1 on."""
    looked_at: int
    """How many messages stay where they are, of those that were looked at."""
    rows: list[tuple[bytes, bytes]]
    """A head, which says what the protocol knows, and a body."""


class Tally(msgspec.Struct, frozen=True):
    """How many messages were counted, and a sum of their digests in which order plays no part."""

    count: int = 0
    sum: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, (self.sum + other.sum) % MODULUS)


class Arrivals(msgspec.Struct, frozen=True):
    """What a queue remembers of a move into it."""

    last: int = 0
    mark: str = ""
    tally: Tally = Tally()


def tally(bodies: Iterable[bytes]) -> Tally:
    """Return the tally of *bodies*, as scripts make it of what they store."""
    count = total = 0
    for body in bodies:
        count += 1
        # Not against anybody: it finds what was lost or changed on its way.
        total += int(hashlib.sha1(body, usedforsecurity=False).hexdigest()[:12], 16)
    return Tally(count, total % MODULUS)


def batch(reply: Sequence[Any]) -> Batch:
    """Return what a script has taken, or found in transit."""
    run, number, looked_at, words = reply
    pairs = list(zip(words[::2], words[1::2], strict=True))
    return Batch(run.decode(), int(number), int(looked_at), pairs)


def arrived(move: str, transit: str, number: int, what: Tally) -> Call[bool]:
    """Forget batch *number*, which has arrived; false if that was done before."""
    args = (number, what.count, what.sum)
    return Call(_ARRIVED, (move, transit), args, bool, repeatable=True)


def over(move: str, transit: str, run: str) -> Call[bool]:
    """Forget the move *run*; false if something is on its way, or it is another by now."""
    return Call(_OVER, (move, transit), (run,), bool, repeatable=True)


def done(fence: str) -> Call[bool]:
    """Let a queue forget a move into it, which is over, in a week."""
    return Call("EXPIRE", (fence,), (KEEP_S,), bool, repeatable=True)


def left(move: str) -> Call[Tally]:
    """Return what has left and is known to have arrived."""
    return Call("HMGET", (move,), ("count", "sum"), _tally, repeatable=True)


def arrivals(fence: str) -> Call[Arrivals]:
    """Return what a queue remembers of a move into it."""
    fields = ("last", "mark", "count", "sum")
    return Call("HMGET", (fence,), fields, _arrivals, repeatable=True)


def _tally(reply: Sequence[bytes | None]) -> Tally:
    return Tally(*(int(each or 0) for each in reply))


def _arrivals(reply: Sequence[bytes | None]) -> Arrivals:
    last, mark, *rest = reply
    return Arrivals(int(last or 0), (mark or b"").decode(), _tally(rest))
