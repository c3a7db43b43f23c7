"""What the ledgers of all protocols answer alike.

A *lease* is a name on a queue that one query has at a time. What it takes is written down in a
*claim*, of which one is open at a time: who follows after a crash finds the same in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tambomq.errors import LeaseLost, LeaseTaken, QueueError
from tambomq.store.call import Arg

CHUNK: Final = 1000
"""Messages of one script, which takes some 3 ms; others wait no longer than that."""

LOOKED_AT: Final = ("label", "until", "hidden_until", "acked", "claim")
"""The fields that `holding` reads."""
_ENDS: Final = 256
"""The digest looks at so many bytes at either end of a body. parts/digest.lua does the same."""


class Term(msgspec.Struct, frozen=True):
    """Who holds which lease: *owner* is a token that nobody else has."""

    queue: str
    lease: str
    owner: str
    label: str = ""
    """Who that is, for whoever is refused."""
    lease_ms: int = 60_000

    @property
    def hide_ms(self) -> int:
        """For how long messages are hidden: another driver has as long again to come back."""
        return 2 * self.lease_ms


class Standing(msgspec.Struct, frozen=True):
    """Whether the lease is ours and, if so, where it stands."""

    ours: bool
    acked: int = 0
    """Claims that are over."""
    claim: int = 0
    """The open claim; 0 for none."""
    mark: str = ""
    released: int = 0
    """The claim that was taken away, if it was the last."""
    lapsed: bool = False
    """Whether others may have had what the open claim has."""
    label: str = ""
    """Who has the lease, if it is another."""
    until_ms: int = 0
    now_ms: int = 0


class Claim(msgspec.Struct, frozen=True):
    """What a lease has taken."""

    size: int
    added: int
    """Of them, those taken just now; 0: it was there before."""
    mark: str


class Settled(msgspec.Struct, frozen=True):
    """What became of the messages of a claim."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    """Others have received them since, or they are gone."""


class Opened(msgspec.Struct, frozen=True):
    """Who has a lease, which claim is open (0 for none), and its mark."""

    owner: str
    claim: int
    mark: str


class Holding(msgspec.Struct, frozen=True):
    """A lease, as people look at it."""

    name: str
    state: str
    """``held`` by a query that is alive; ``away``: the next with this name goes on with its claim;
    ``dead``: others may have its messages by now; ``free``: it has nothing."""
    holder: str
    """Who has it, or had it last; '' where it was given up."""
    until_ms: int
    """When it ends, or ended, unless it is renewed; 0 where it was given up."""
    acked: int
    """Claims that are over."""
    claim: int
    """The open claim; 0 for none."""
    size: int
    """Messages of the open claim."""


def holding(name: str, fields: Sequence[bytes | None], size: int, now_ms: int) -> Holding:
    """Return a lease as its ledger's fields and the size of its claim tell of it."""
    until, hidden, acked, claim = (_number(each) for each in fields[1:])
    state = "free"
    if now_ms < until:
        state = "held"
    elif claim:
        state = "away" if now_ms < hidden else "dead"
    return Holding(name, state, text(fields[0]), until, acked, claim, size if claim else 0)


def loose(queue: str, lease: str, reply: Sequence[Any]) -> Sequence[Any]:
    """Return what a script answered about a lease that is nobody's; raise `LeaseTaken`."""
    if reply[0] == b"held":
        raise LeaseTaken(queue, lease, text(reply[1]))
    return reply


def forgotten(queue: str, lease: str, reply: Sequence[Any]) -> bool:
    """Return whether there was a lease to forget; raise `QueueError` if it may not be."""
    word, number = loose(queue, lease, reply)
    if word == b"open":
        told = f"lease {lease!r} on queue {queue!r} has claim {number} open"
        raise QueueError(queue, f"{told}: give its messages back first, or finish its query")
    return bool(number)


def names(reply: Iterable[bytes]) -> list[str]:
    """Return the names of leases in order."""
    return sorted(map(text, reply))


def standing(reply: Sequence[Any]) -> Standing:
    """Return what an attempt to have a lease came to."""
    word, *rest = reply
    if word == b"held":
        label, until, now = rest
        return Standing(ours=False, label=text(label), until_ms=until, now_ms=now)
    acked, number, mark, released, lapsed = rest
    return Standing(
        ours=True,
        acked=acked,
        claim=number,
        mark=text(mark),
        released=released,
        lapsed=bool(lapsed),
    )


def granted(term: Term, reply: Sequence[Any]) -> Sequence[Any]:
    """Return what a script answered; raise `LeaseLost`, or `QueueError` for another checkpoint."""
    if reply[0] == b"fenced":
        who = f"{text(reply[1])} has it now" if reply[1] else "it was given up"
        raise LeaseLost(term.queue, term.lease, who)
    if reply[0] == b"astray":
        raise QueueError(
            term.queue,
            f"lease {term.lease!r} on queue {term.queue!r} is at claim {reply[1]}, which this "
            "checkpoint does not know: another has used it, or this one is an old copy",
        )
    return reply


def opened(reply: Sequence[bytes | None]) -> Opened:
    """Return what the fields owner, claim and mark say."""
    owner, number, mark = reply
    return Opened(text(owner), int(number or 0), text(mark))


def settled(rounds: Iterable[Sequence[int]]) -> Settled:
    """Return the sums of what single scripts have settled."""
    return Settled(*map(sum, zip(*rounds, strict=True)))


def claimed(term: Term, reply: Sequence[Any]) -> Claim:
    """Return what a claim has; raise as `granted`."""
    size, added, mark = granted(term, reply)
    return Claim(size, added, text(mark))


def written(queue: str, lease: str, number: int, reply: int) -> None:
    """Raise `QueueError` if verdicts were about a claim that is not open."""
    if not reply:
        told = f"claim {number} of lease {lease!r} on queue {queue!r} is not open"
        raise QueueError(queue, f"{told}: its verdicts come too late")


def flat(verdicts: Iterable[tuple[str, str]]) -> list[Arg]:
    """Return ids and verdicts one after the other, whatever a reason quotes."""
    words: list[Arg] = []
    for id, verdict in verdicts:
        words += (id, verdict.encode("utf-8", "backslashreplace"))
    return words


def digest(body: bytes) -> bytes:
    """Return what a ledger knows *body* by."""
    ends = body if len(body) <= 2 * _ENDS else body[:_ENDS] + body[-_ENDS:]
    # Not against anybody: it finds a body that was replaced.
    short = hashlib.sha1(ends, usedforsecurity=False).hexdigest()[:12]
    return b"%d:%b" % (len(body), short.encode())


def milliseconds(reply: Sequence[bytes]) -> int:
    """Return what TIME answers in milliseconds."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _number(value: bytes | None) -> int:
    """Return a number of a ledger; what somebody else has put there is 0."""
    return int(value) if value and value.isdigit() else 0


def text(value: bytes | None) -> str:
    """Return what was stored as text."""
    return (value or b"").decode("utf-8", "replace")
