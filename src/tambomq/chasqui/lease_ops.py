"""How a query holds many jobs at once, as calls and plans nobody has made yet.

What a lease and a claim are: `tambomq.store.ledger`. The jobs of a claim are pending in the name
of the lease's own consumer, so workers of the same group leave them alone while they are renewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.chasqui.job import MAX_ATTEMPTS, U32, UNRECOVERABLE
from tambomq.chasqui.keys import GROUP, Keys, lessee
from tambomq.chasqui.ops import EVENTS_CAP
from tambomq.chasqui.options import CLAIM_IDLE_MS, DLQ_CAP
from tambomq.chasqui.verdict import Death, Rules, after_failure, arrival
from tambomq.chasqui.wire import encode_member
from tambomq.store import leasing, ledger
from tambomq.store.call import Arg, Call, Plan, Script, load_script, results
from tambomq.store.ledger import CHUNK, Claim, Opened, Settled, Standing, Term


def _load(name: str, *parts: str) -> Script:
    return load_script("tambomq.chasqui", f"lease_{name}", *parts)


_CLAIM = _load("claim", "claims", "note", "prefix", "digest")
_RENEW = _load("renew", "owns", "held")
_PRUNE = _load("prune", "owns", "held")
_ACKNOWLEDGE = _load("acknowledge", "claims", "note", "room", "owns", "held", "ackdel_plain")

# A lease has read whatever there was, so here only what is no job at all counts as dead.
_ANY_SIZE = Rules(max_attempts=U32, max_payload_bytes=1 << 62)


class Group(msgspec.Struct, frozen=True):
    """Whose jobs are leased, and what is told of them."""

    name: str = GROUP
    events_cap: int = EVENTS_CAP
    """0 writes no events."""
    dlq_cap: int = DLQ_CAP


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job as it was claimed."""

    entry: str
    digest: str


_decode_member = msgspec.msgpack.Decoder(Member).decode


# ── the lease ────────────────────────────────────────────────────────────────


def attach(group: Group, term: Term, *, gone: str = "") -> Call[Standing]:  # noqa: ARG001  (as in all protocols)
    """Have the lease, unless another query has it now; *gone* is one that is known to be dead."""
    keys = Keys(term.queue)
    return leasing.attach(keys.leases, keys.ledger(term.lease), term, gone)


def beat(group: Group, term: Term) -> Call[Any]:
    """Keep the lease; raise `QueueError` if another has it."""
    return _renewal(group, term, 0, 0)


def renew(group: Group, term: Term) -> Plan[int]:
    """Keep the lease and its jobs out of others' hands; how many of them are no more ours."""
    return leasing.walk(lambda first: _renewal(group, term, first, CHUNK))


def resign(group: Group, term: Term) -> Call[bool]:  # noqa: ARG001  (as in all protocols)
    """Let another have the lease at once; false if another has it already."""
    return leasing.resign(Keys(term.queue).ledger(term.lease), term)


def release_expired(group: Group, queue: str, *, but: str = "") -> Plan[dict[str, int]]:  # noqa: ARG001  (as in all protocols)
    """Give up claims of queries that are dead for too long; how many jobs each lease had.

    *but* names a lease to leave alone. The jobs are anybody's to claim.
    """
    keys = Keys(queue)
    return leasing.release_expired(keys.leases, partial(give_up, keys), but)


# ── claims ───────────────────────────────────────────────────────────────────


def claim(group: Group, term: Term, number: int, mark: str, count: int) -> Plan[Claim]:
    """Take up to *count* jobs as claim *number*; or tell what it has already.

    Raises `QueueError` if the lease is another's, or at another claim. A paused queue has none.
    """
    keys = Keys(term.queue)
    where = (*_own(term), keys.paused, keys.events)

    def take(size: int, more: int) -> Call[Claim]:
        args = (
            *(term.owner, number, mark, size, more, _hide_ms(term)),
            *(group.name, lessee(term.lease), CLAIM_IDLE_MS, group.events_cap),
        )
        return Call(_CLAIM, where, args, partial(ledger.claimed, term), repeatable=True)

    return leasing.claim(take, count)


def prune(group: Group, term: Term, size: int) -> Plan[int]:
    """Leave out of a claim that nobody has seen what is no more ours; how many are left."""
    args = (term.owner, CHUNK, group.name, lessee(term.lease))
    step = Call(_PRUNE, _own(term), args, partial(ledger.granted, term), repeatable=True)
    return leasing.prune(step, size)


def acknowledge(group: Group, term: Term, number: int, mark: str) -> Plan[Settled]:
    """End claim *number*, whose batch is committed; nothing is done if it has ended before.

    Raises `QueueError` if the lease is another's, or another claim is open.
    """
    keys = Keys(term.queue)
    own = (*_own(term), keys.verdicts(term.lease))
    where = (*own, keys.delayed, keys.dlq, keys.events, keys.stalls(""))
    who = (group.name, lessee(term.lease), group.dlq_cap, group.events_cap)
    args = (term.owner, number, mark, CHUNK, *who)
    step = Call(_ACKNOWLEDGE, where, args, partial(ledger.granted, term), repeatable=True)
    return leasing.acknowledge(step)


def judge(
    queue: str,
    lease: str,
    number: int,
    verdicts: Sequence[tuple[str, str]],
    *,
    max_attempts: int = MAX_ATTEMPTS,
) -> Plan[None]:
    """Say what is to become of jobs: ``r<ms> <reason>`` to run again, ``d<reason>``, or ``''``.

    Each is named by its entry; one whose runs are used up (*max_attempts*, unless it says it
    itself) dies instead, as at a worker. Raises `QueueError` if claim *number* is not open.
    """
    rules = Rules(max_attempts=max_attempts)
    keys = Keys(queue)
    where = (keys.ledger(lease), keys.verdicts(lease))
    for first in range(0, len(verdicts), CHUNK):
        chunk = verdicts[first : first + CHUNK]
        found = results((yield [_entry(keys, entry) for entry, _ in chunk]))
        words: list[Arg] = []
        for (entry, verdict), fields in zip(chunk, found, strict=True):
            words += (entry, _spelled(verdict, fields, rules))
        results((yield (leasing.judge(where, queue, lease, number, words),)))


def _spelled(verdict: str, fields: Sequence[bytes], rules: Rules) -> bytes:
    """Return a verdict as `lease_acknowledge` reads it.

    ``r<ms> <size of reason> <reason><member>``, or ``d<reason> <detail>``; a job that is gone ends.
    """
    if verdict.startswith("d"):
        return _dead(UNRECOVERABLE, verdict[1:])
    if not verdict or not fields:
        return b""
    wait, _, reason = verdict.partition(" ")
    job = arrival(fields, 0, _ANY_SIZE)
    if isinstance(job, Death):
        # What cannot be read would not be read the next time.
        return _dead(job.reason, job.detail or reason)
    became = after_failure(*job, RuntimeError(reason), rules, _no_jitter)
    if isinstance(became, Death):
        return _dead(became.reason, became.detail)
    # Whoever promotes it reads the engine's dialect.
    told, member = _text(reason), encode_member(job[1], became.body, "engine")
    return b"%b %d %b%b" % (wait.encode(), len(told), told, member)


def _dead(reason: str, detail: str) -> bytes:
    return _text(f"d{reason} {detail}")


def _text(reason: str) -> bytes:
    """Return *reason* as bytes, whatever it quotes."""
    return reason.encode("utf-8", "backslashreplace")


def _no_jitter(bound: int) -> int:  # noqa: ARG001  (how long to wait is the verdict's affair)
    return 0


# ── what a claim has ─────────────────────────────────────────────────────────


def size(group: Group, term: Term) -> Call[int]:  # noqa: ARG001  (as in all protocols)
    """Return how many jobs the open claim has."""
    return Call("LLEN", (Keys(term.queue).members(term.lease),), (), int, repeatable=True)


def opened(group: Group, term: Term) -> Call[Opened]:  # noqa: ARG001  (as in all protocols)
    """Return who has the lease, and which claim is open."""
    return leasing.opened(Keys(term.queue).ledger(term.lease))


def members(term: Term, first: int, count: int) -> Call[list[Member]]:
    """Return jobs of the open claim by their places in it."""
    where = (Keys(term.queue).members(term.lease),)
    return Call("LRANGE", where, (first, first + count - 1), _members, repeatable=True)


def held(group: Group, term: Term, first: str, last: str) -> Call[set[str]]:
    """Return the entries from *first* to *last* that are in the lease's hands."""
    args = (group.name, first, last, CHUNK, lessee(term.lease))
    return Call("XPENDING", (Keys(term.queue).stream,), args, _held, repeatable=True)


def _own(term: Term) -> tuple[str, str, str]:
    keys = Keys(term.queue)
    return keys.stream, keys.ledger(term.lease), keys.members(term.lease)


def _hide_ms(term: Term) -> int:
    """For how long others leave jobs alone: workers claim what has been idle for so long."""
    return min(term.hide_ms, CLAIM_IDLE_MS)


def _renewal(group: Group, term: Term, first: int, count: int) -> Call[Any]:
    who = (group.name, lessee(term.lease))
    args = (term.owner, term.lease_ms, _hide_ms(term), first, count, *who)
    return Call(_RENEW, _own(term), args, partial(ledger.granted, term), repeatable=True)


def give_up(keys: Keys, lease: str) -> Call[int]:
    """Let a claim be nobody's if its query is dead for too long; how many jobs it had."""
    return leasing.give_up(keys.ledger(lease), keys.members(lease), keys.verdicts(lease))


def _entry(keys: Keys, entry: str) -> Call[Sequence[bytes]]:
    return Call("XRANGE", (keys.stream,), (entry, entry), _fields, repeatable=True)


def _fields(reply: list[Any]) -> Sequence[bytes]:
    return reply[0][1] if reply else ()


def _members(reply: list[bytes]) -> list[Member]:
    return [_decode_member(line) for line in reply]


def _held(reply: list[Any]) -> set[str]:
    return {row[0].decode() for row in reply}
