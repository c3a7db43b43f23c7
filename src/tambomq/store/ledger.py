"""What the ledgers of all protocols answer alike.

A *lease* is a name on a queue that one query has at a time. What it takes is written down in a
*claim*, of which one is open at a time: who follows after a crash finds the same in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tambomq.errors import QueueError
from tambomq.store.call import Arg

CHUNK: Final = 1000
"""Messages of one script, which takes some 3 ms; others wait no longer than that."""

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
    """Return what a script answered; raise `QueueError` if it refused."""
    lease = f"lease {term.lease!r} on queue {term.queue!r}"
    if reply[0] == b"fenced":
        who = f"{text(reply[1])} has it now" if reply[1] else "it was given up"
        raise QueueError(term.queue, f"{lease} is lost: {who}; this query changes nothing any more")
    if reply[0] == b"astray":
        raise QueueError(
            term.queue,
            f"{lease} is at claim {reply[1]}, which this checkpoint does not know: "
            "another checkpoint has used it, or this one is an old copy",
        )
    return reply


def opened(reply: Sequence[bytes | None]) -> Opened:
    """Return what the fields owner, claim and mark say."""
    owner, number, mark = reply
    return Opened(text(owner), int(number or 0), text(mark))


def settled(rounds: Iterable[Sequence[int]]) -> Settled:
    """Return the sums of what single scripts have settled."""
    return Settled(*map(sum, zip(*rounds, strict=True)))


def too_late(queue: str, lease: str, number: int) -> QueueError:
    """Return the error for verdicts about a claim that is not open."""
    told = f"claim {number} of lease {lease!r} on queue {queue!r} is not open"
    return QueueError(queue, f"{told}: its verdicts come too late")


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


def text(value: bytes | None) -> str:
    """Return what was stored as text."""
    return (value or b"").decode("utf-8", "replace")
