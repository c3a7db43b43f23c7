"""Calls of workers: read entries, renew them, settle them.

A call that settles or renews an entry does so only while this consumer owns it: a worker that was
frozen until others took over changes nothing. Each call writes its events in the same script, and
may be repeated after a lost reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tambomq.chasqui.decisions import DeadLettered
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.wire.envelope import to_store
from tambomq.store.call import Arg, Call, Script, load_script
from tambomq.store.features import Features

# Lua's `unpack` takes only some thousands of values.
MAX_CLAIMED = 1000


def _scripts(name: str) -> dict[bool, Script]:
    """Return two variants by whether the server has XACKDEL."""
    return {
        native: load_script("tambomq.chasqui.ops", name, f"ackdel_{kind}")
        for native, kind in ((True, "native"), (False, "plain"))
    }


_CLAIM = load_script("tambomq.chasqui.ops", "claim")
_JOIN_FULL = load_script("tambomq.chasqui.ops", "join_full")
_RECOVER = load_script("tambomq.chasqui.ops", "recover")
_RENEW = load_script("tambomq.chasqui.ops", "renew")
_GIVE_BACK = load_script("tambomq.chasqui.ops", "give_back")
_LEAVE = load_script("tambomq.chasqui.ops", "leave")
_LIMIT = load_script("tambomq.chasqui.ops", "limit")
_SETTLE = _scripts("settle")
_DONE = _scripts("done")
_RETRY = _scripts("retry")
_BURY = _scripts("bury")
_ABORT = _scripts("abort")


class ConsumerContext(msgspec.Struct):
    """The identity of one consumer in its group, and the features of its server.

    The fetcher updates `features` after each reconnect: a failover may change them.
    """

    keys: Keys
    group: str
    consumer: str
    features: Features = Features()
    events_cap: int = 0
    """Length of the events stream; 0 writes no events."""

    @property
    def log_fields(self) -> dict[str, str]:
        """Return the fields that every log record about this consumer carries."""
        return {"queue": self.keys.queue, "group": self.group, "consumer": self.consumer}


class Delivery(msgspec.Struct, frozen=True):
    """A stream entry that was delivered to this consumer."""

    entry: str
    fields: Sequence[bytes]
    deliveries: int
    """Earlier deliveries of it."""


class HandlerRun(msgspec.Struct, gc=False):
    """A run of a handler, as events report it."""

    entry: str
    id: str
    name: str
    attempt: int
    """The number of this run; the first is 1."""
    duration_us: int


def create_group(context: ConsumerContext) -> Call[bool]:
    """Create the group so that it sees all entries; the error is BUSYGROUP if it exists."""
    verb = ("XGROUP", "CREATE")
    args = (context.group, "0", "MKSTREAM")
    return Call(verb, (context.keys.stream,), args, bool, repeatable=True)


def register_consumer(context: ConsumerContext) -> Call[int]:
    """Mark a consumer whose name a user chose as one of ours.

    Producers must know whether a released engine shares the queue, and its consumers have names
    that users choose, too.
    """
    return Call("SADD", (context.keys.signs[3],), (context.consumer,), int, repeatable=True)


def join_when_full(context: ConsumerContext, *, is_named: bool) -> Call[int]:
    """Create the group, and register a consumer that *is_named* by a user, also without memory."""
    args = (context.group, context.consumer if is_named else "")
    return Call(
        _JOIN_FULL, (context.keys.stream, context.keys.signs[3]), args, int, repeatable=True
    )


def read(context: ConsumerContext, count: int, block_ms: int, idle_ms: int) -> Call[list[Delivery]]:
    """Read entries: first those whose lease of *idle_ms* ran out, if the server can claim them."""
    claim: tuple[Arg, ...] = ("CLAIM", idle_ms) if context.features.claim else ()
    verb = (
        "XREADGROUP", "GROUP", context.group, context.consumer,
        "COUNT", count, "BLOCK", block_ms, *claim, "STREAMS",
    )  # fmt: skip
    return Call(verb, (context.keys.stream,), (">",), _read)


def claim(context: ConsumerContext, count: int, idle_ms: int) -> Call[list[Delivery]]:
    """Claim entries whose lease of *idle_ms* ran out, on any server."""
    args = (context.group, context.consumer, idle_ms, min(count, MAX_CLAIMED))
    return Call(_CLAIM, (context.keys.stream,), args, _deliveries)


def recover(context: ConsumerContext, held: Iterable[str]) -> Call[list[Delivery]]:
    """Return entries that this consumer owns and that are not *held*: their reply was lost."""
    args = (context.group, context.consumer, *held)
    return Call(_RECOVER, (context.keys.stream,), args, _deliveries, repeatable=True)


def renew(context: ConsumerContext, held: Iterable[str]) -> Call[list[str]]:
    """Renew the leases of *held*; returns the entries that this consumer does not own any more."""
    args = (context.group, context.consumer, *held)
    return Call(_RENEW, (context.keys.stream,), args, _names, repeatable=True)


def give_back(
    context: ConsumerContext, entries: Iterable[tuple[str, int]], idle_ms: int
) -> Call[int]:
    """Give back entries without a run; each with the number of its earlier deliveries."""
    flat = [item for pair in entries for item in pair]
    args = (context.group, context.consumer, RETURNED, idle_ms, *flat)
    return Call(_GIVE_BACK, (context.keys.stream,), args, int, repeatable=True)


def settle(
    context: ConsumerContext, ts: int, started: Sequence[Arg], completed: Sequence[Arg]
) -> Call[list[str]]:
    """Report jobs that start and acknowledge those that completed; returns entries that were lost.

    *started* has id, name and attempt of each job in turn; *completed* has entry, id, name,
    attempt and duration in microseconds.
    """
    redis_keys = (context.keys.stream, context.keys.events, context.keys.stalls(""))
    head = (context.group, context.consumer, context.events_cap, ts, len(started) // 3)
    args = (*head, *started, *completed)
    return Call(_SETTLE[context.features.xackdel], redis_keys, args, _names, repeatable=True)


def done(
    context: ConsumerContext, ran: HandlerRun, value: bytes, ttl_s: int, ts: int
) -> Call[bool]:
    """Acknowledge a job and store its result; false if the entry was lost."""
    keys = context.keys
    redis_keys = (keys.stream, keys.events, keys.result(ran.id), keys.stalls(ran.id))
    args = (
        context.group, context.consumer, ran.entry, value, ttl_s, context.events_cap, ts,
        ran.id, ran.name, ran.attempt, ran.duration_us,
    )  # fmt: skip
    return Call(_DONE[context.features.xackdel], redis_keys, args, bool, repeatable=True)


def retry(
    context: ConsumerContext,
    ran: HandlerRun,
    body: bytes,
    wait_ms: int,
    reason: str,
    dialect: str,
    ts: int,
) -> Call[bool | str]:
    """Delay a job by *wait_ms*, by the server's clock; *body* is its envelope for the next run.

    False if the entry was lost. The leader's name, and nothing done, if the leader cannot read
    *dialect*.
    """
    keys = context.keys
    redis_keys = (keys.stream, keys.delayed, keys.events, *keys.signs, keys.previous)
    stored_as, member = to_store(ran.name, body, dialect)
    args = (
        context.group, context.consumer, ran.entry, stored_as, member, context.events_cap, ts,
        ran.id, ran.name, ran.attempt, as_text(reason), ran.duration_us, wait_ms,
    )  # fmt: skip
    return Call(_RETRY[context.features.xackdel], redis_keys, args, _retried, repeatable=True)


def bury(
    context: ConsumerContext,
    entry: str,
    letter: DeadLettered,
    dlq_cap: int,
    ts: int,
    duration_us: int | None = None,
) -> Call[bool]:
    """Move a job to the dead-letter queue; false if the entry was lost.

    *duration_us*: the duration of its last run; `None` if it did not run.
    """
    keys = context.keys
    redis_keys = (keys.stream, keys.dlq, keys.events, keys.stalls(letter.id))
    args = (
        context.group, context.consumer, entry, dlq_cap, letter.reason, letter.payload, letter.name,
        as_text(letter.detail), context.events_cap, ts, letter.id, letter.attempt,
        "" if duration_us is None else duration_us, as_text(letter.error_type),
        as_text(letter.traceback),
    )  # fmt: skip
    return Call(_BURY[context.features.xackdel], redis_keys, args, bool, repeatable=True)


def abort(context: ConsumerContext, entry: str, id: str, name: str, reason: str) -> Call[bool]:
    """End a job as cancelled, by its own handler; false if the entry was lost."""
    keys = context.keys
    redis_keys = (keys.stream, keys.events, keys.stalls(id))
    args = (
        context.group, context.consumer, entry, context.events_cap, id, name, as_text(reason),
    )  # fmt: skip
    return Call(_ABORT[context.features.xackdel], redis_keys, args, bool, repeatable=True)


def limit(keys: Keys, max_jobs: int, duration_ms: int, wanted: int) -> Call[tuple[int, int]]:
    """Return how many of *wanted* jobs the rate limiter allows now, and ms until the next ones."""
    args = (max_jobs, duration_ms, wanted)
    return Call(_LIMIT, (keys.limiter,), args, tuple)


def is_paused(keys: Keys) -> Call[bool]:
    """Whether the queue is paused."""
    return Call("EXISTS", (keys.paused,), (), bool, repeatable=True)


def emit(context: ConsumerContext, ts: int, name: str, id: str = "", *fields: Arg) -> Call[bytes]:
    """Append an event; *fields* are names and values in turn."""
    head = ("MAXLEN", "~", context.events_cap, "*", "e", name, "id", id, "ts", ts)
    return Call("XADD", (context.keys.events,), (*head, *fields), bytes)


def leave(context: ConsumerContext) -> Call[bool]:
    """Remove this consumer from its group; false if it still owns entries."""
    redis_keys = (context.keys.stream, context.keys.signs[3])
    return Call(_LEAVE, redis_keys, (context.group, context.consumer), bool, repeatable=True)


def connection_id() -> Call[int]:
    """Return the server's number of this connection, for `unblock`."""
    return Call("CLIENT ID", (), (), int)


def unblock(connection: int) -> Call[bool]:
    """Make a blocked read of another connection return as if its time were up."""
    return Call("CLIENT UNBLOCK", (), (connection,), bool)


def entry_ms(entry: str) -> int:
    """Return when *entry* was added, on the server's clock; 0 if its id is malformed."""
    ms = entry.partition("-")[0]
    return int(ms) if ms.isdecimal() else 0


def _read(reply: Any) -> list[Delivery]:
    return _deliveries(reply[0][1]) if reply else []


def _deliveries(rows: Any) -> list[Delivery]:
    # Without CLAIM an entry has two items, and this is its first delivery. A deleted entry has no
    # fields.
    return [
        Delivery(row[0].decode(), row[1], row[3] if len(row) > 2 else 0)  # noqa: PLR2004  (said above)
        for row in rows
        if row and row[1] is not None
    ]


def _retried(reply: int | bytes) -> bool | str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else bool(reply)


def as_text(reason: str) -> bytes:
    """Encode *reason*, which may quote text that is not valid UTF-8."""
    return reason.encode("utf-8", "backslashreplace")


def _names(reply: list[bytes]) -> list[str]:
    return [name.decode() for name in reply]
