"""Leases and claims: the values that the lease scripts of all protocols reply with.

A *lease* is a named, exclusive hold on a queue: one owner at a time, which renews it by
heartbeats. Under a lease, messages are received in numbered *claims*, of which at most one is
open. The claim's *members* (its messages) are stored in Redis, in the lease's *ledger*, so an
owner that takes over after a crash reads exactly the same batch again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from tambomq.errors import InvalidValue, LeaseLost, LeaseTaken, QueueError
from tambomq.store.call import Arg

CHUNK: Final = 1000
"""Messages per script: that takes some 3 ms, during which Redis serves no other client."""

INFO_FIELDS: Final = ("label", "until", "hidden_until", "acked", "claim")
"""The ledger's fields that `lease_info` reads, in its order."""
_DIGEST_ENDS: Final = 256
"""The digest covers this many bytes at either end of a body, as parts/digest.lua does."""


class LeaseRequest(msgspec.Struct, frozen=True):
    """One owner's hold on one lease, sent with each operation."""

    queue: str
    lease: str
    owner: str
    """Fencing token: random, one per holder. Scripts refuse an owner that was replaced."""
    holder: str = ""
    """A description of the holding process, shown to callers that are refused the lease."""
    lease_ms: int = 60_000

    @property
    def hide_ms(self) -> int:
        """How long messages are hidden: twice the lease, so that a new owner can take over."""
        return 2 * self.lease_ms


class AttachResult(msgspec.Struct, frozen=True):
    """The outcome of an attempt to acquire a lease, and the lease's state."""

    acquired: bool
    acked: int = 0
    """The number of the last acknowledged claim."""
    claim: int = 0
    """The number of the open claim; 0 for none."""
    claim_token: str = ""
    released: int = 0
    """The number of the last claim that was released because its owner had expired."""
    lapsed: bool = False
    """Whether others may have received messages of the open claim."""
    holder: str = ""
    """The current holder, if the lease was refused."""
    until_ms: int = 0
    """When the current holder's lease expires, if it was refused."""
    now_ms: int = 0


class Claim(msgspec.Struct, frozen=True):
    """An open claim."""

    size: int
    """Messages it has."""
    added: int
    """Those of them received by this operation; 0 if the claim was open before."""
    claim_token: str
    """Random; tells this claim from an earlier one of the same number."""


class AckCounts(msgspec.Struct, frozen=True):
    """What became of a claim's messages when it was acknowledged."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    """Others have received or deleted them since."""


class OpenClaim(msgspec.Struct, frozen=True):
    """The owner of a lease and its open claim."""

    owner: str
    number: int
    """0 for no open claim."""
    claim_token: str

    def encode(self) -> str:
        """Return it as one word, which rows carry so that their verdicts can be fenced."""
        return f"{self.number}.{self.claim_token}.{self.owner}"

    @classmethod
    def parse(cls, word: str) -> OpenClaim:
        """Return what `encode` has written; raise `InvalidValue`."""
        number, _, rest = str(word).partition(".")
        claim_token, dot, owner = rest.partition(".")
        if not dot or not (number.isascii() and number.isdigit()):
            raise InvalidValue("claim", word, "as the leased stream has it")
        return cls(owner, int(number), claim_token)


class LeaseInfo(msgspec.Struct, frozen=True):
    """A lease as operators see it."""

    name: str
    state: str
    """``held``: its holder renews it. ``away``: expired, but its claim's messages are still
    hidden, and the next holder continues with them. ``dead``: expired, and others may have
    received its messages. ``free``: neither held nor with an open claim."""
    holder: str
    """The current or last holder; '' if it resigned."""
    until_ms: int
    """When the lease expires or expired; 0 if its holder resigned."""
    acked: int
    """The number of the last acknowledged claim."""
    claim: int
    """The number of the open claim; 0 for none."""
    size: int
    """Messages of the open claim."""


def lease_info(name: str, fields: Sequence[bytes | None], size: int, now_ms: int) -> LeaseInfo:
    """Return a lease from its `INFO_FIELDS` and the size of its open claim."""
    until, hidden, acked, claim = (_number(each) for each in fields[1:])
    state = "free"
    if now_ms < until:
        state = "held"
    elif claim:
        state = "away" if now_ms < hidden else "dead"
    return LeaseInfo(name, state, text(fields[0]), until, acked, claim, size if claim else 0)


def require_unheld(queue: str, lease: str, reply: Sequence[Any]) -> Sequence[Any]:
    """Return *reply*; raise `LeaseTaken` if it says that the lease is held."""
    if reply[0] == b"held":
        raise LeaseTaken(queue, lease, text(reply[1]))
    return reply


def require_owner(request: LeaseRequest, reply: Sequence[Any]) -> Sequence[Any]:
    """Return *reply*; raise `LeaseLost`, or `QueueError` if the lease is at another claim."""
    if reply[0] == b"fenced":
        why = f"{text(reply[1])} has it now" if reply[1] else "it was released"
        raise LeaseLost(request.queue, request.lease, why)
    if reply[0] == b"wrong_claim":
        raise QueueError(
            request.queue,
            f"lease {request.lease!r} on queue {request.queue!r} is at claim {reply[1]}, which "
            "this checkpoint does not know: another query has used the lease, or the checkpoint "
            "is an old copy",
        )
    return reply


def decode_forget(queue: str, lease: str, reply: Sequence[Any]) -> bool:
    """Return whether a lease was deleted; raise `LeaseTaken`, or `QueueError` for an open claim."""
    word, number = require_unheld(queue, lease, reply)
    if word == b"open":
        raise QueueError(
            queue,
            f"lease {lease!r} on queue {queue!r} has claim {number} open: "
            "give its messages back first, or finish its query",
        )
    return bool(number)


def decode_names(reply: Iterable[bytes]) -> list[str]:
    """Return the members of a set as sorted text."""
    return sorted(map(text, reply))


def decode_attach(reply: Sequence[Any]) -> AttachResult:
    """Return the outcome of an attempt to acquire a lease."""
    word, *rest = reply
    if word == b"held":
        holder, until, now = rest
        return AttachResult(acquired=False, holder=text(holder), until_ms=until, now_ms=now)
    acked, number, claim_token, released, lapsed = rest
    return AttachResult(
        acquired=True,
        acked=acked,
        claim=number,
        claim_token=text(claim_token),
        released=released,
        lapsed=bool(lapsed),
    )


def decode_open_claim(reply: Sequence[bytes | None]) -> OpenClaim:
    """Return the fields ``owner``, ``claim`` and ``mark`` of a ledger."""
    owner, number, claim_token = reply
    return OpenClaim(text(owner), int(number or 0), text(claim_token))


def decode_claim(request: LeaseRequest, reply: Sequence[Any]) -> Claim:
    """Return a claim; raise as `require_owner` does."""
    size, added, claim_token = require_owner(request, reply)
    return Claim(size, added, text(claim_token))


def sum_ack_counts(chunks: Iterable[Sequence[int]]) -> AckCounts:
    """Return the sums over the chunks of one acknowledgement."""
    return AckCounts(*map(sum, zip(*chunks, strict=True)))


def decode_verdicts(request: LeaseRequest, number: int, reply: Sequence[Any]) -> None:
    """Raise `LeaseLost`, or `QueueError` if another claim was open than *number*, or none."""
    if not require_owner(request, reply)[0]:
        raise QueueError(
            request.queue,
            f"claim {number} of lease {request.lease!r} on queue {request.queue!r} is not open: "
            "its verdicts come too late",
        )


def verdict_args(verdicts: Iterable[tuple[str, str]]) -> list[Arg]:
    """Return ids and verdicts alternating; what UTF-8 cannot encode in a reason is escaped."""
    words: list[Arg] = []
    for id, verdict in verdicts:
        words += (id, verdict.encode("utf-8", "backslashreplace"))
    return words


def body_digest(body: bytes) -> bytes:
    """Return the digest by which a ledger recognises a body that was replaced after the claim."""
    ends = body
    if len(body) > 2 * _DIGEST_ENDS:
        ends = body[:_DIGEST_ENDS] + body[-_DIGEST_ENDS:]
    # Detects accidents, not attacks: SHA-1 is what Lua in Redis offers.
    short = hashlib.sha1(ends, usedforsecurity=False).hexdigest()[:12]
    return b"%d:%b" % (len(body), short.encode())


def decode_time_ms(reply: Sequence[bytes]) -> int:
    """Return the reply of TIME in milliseconds."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def _number(value: bytes | None) -> int:
    """Return a field of a ledger as a number; 0 for what no script of ours has written."""
    return int(value) if value and value.isdigit() else 0


def text(value: bytes | None) -> str:
    """Return stored bytes as text; '' for a missing field."""
    return (value or b"").decode("utf-8", "replace")
