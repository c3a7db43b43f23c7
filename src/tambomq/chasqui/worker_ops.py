"""What workers ask of Redis, as calls nobody has made yet.

Whatever ends a job or keeps it is done only while the entry is in this
consumer's hands: a worker that was frozen for too long changes nothing. Each
call writes its events in the same step, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tambomq.chasqui.job import check_whole
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.verdict import Death
from tambomq.chasqui.wire import to_store
from tambomq.errors import InvalidFormat
from tambomq.store.call import Arg, Call, Script, load_script
from tambomq.store.features import Features

PROGRESS_TTL_S = 3600
"""As long as a result is kept."""
LOG_LINES = 1000
"""Of a job, about so many are kept."""
# Lua passes on only some thousands of arguments.
MOST_CLAIMED = 1000


def _scripts(name: str, *parts: str) -> dict[bool, Script]:
    """The script as it is where XACKDEL is known, and where it is not."""
    return {
        native: load_script("tambomq.chasqui", name, *parts, f"ackdel_{kind}")
        for native, kind in ((True, "native"), (False, "plain"))
    }


_CLAIM = load_script("tambomq.chasqui", "claim")
_RECOVER = load_script("tambomq.chasqui", "recover")
_RENEW = load_script("tambomq.chasqui", "renew", "owns")
_GIVE_BACK = load_script("tambomq.chasqui", "give_back", "owns")
_LEAVE = load_script("tambomq.chasqui", "leave")
_LIMIT = load_script("tambomq.chasqui", "limit")
_SETTLE = _scripts("settle", "owns")
_DONE = _scripts("done", "note", "owns")
_RETRY = _scripts("retry", "note", "owns", "prefix", "dialect")
_BURY = _scripts("bury", "note", "room", "owns")


class Seat(msgspec.Struct):
    """Who works where. What the server can do may change, when another takes over from it."""

    keys: Keys
    group: str
    consumer: str
    has: Features = Features()
    events_cap: int = 0
    """0 writes no events."""


class Delivery(msgspec.Struct, frozen=True):
    """A stream entry in a worker's hands."""

    entry: str
    fields: Sequence[bytes]
    deliveries: int
    """How often it was delivered before."""


class Ran(msgspec.Struct, gc=False):
    """A run of a handler, for those who are told of it."""

    entry: str
    id: str
    name: str
    attempt: int
    """Which run it was, beginning with 1."""
    duration_us: int


def make_group(seat: Seat) -> Call[bool]:
    """Let the group be there, and see all that waits; false if it was there before."""
    verb = ("XGROUP", "CREATE")
    args = (seat.group, "0", "MKSTREAM")
    return Call(verb, (seat.keys.stream,), args, bool, repeatable=True)


def enlist(seat: Seat) -> Call[int]:
    """Let producers know whose consumer this is: others have names that users choose, too."""
    return Call("SADD", (seat.keys.signs[3],), (seat.consumer,), int, repeatable=True)


def read(seat: Seat, count: int, block_ms: int, idle_ms: int) -> Call[list[Delivery]]:
    """Take entries: first those that others have let lie for *idle_ms*, where the server can."""
    claim: tuple[Arg, ...] = ("CLAIM", idle_ms) if seat.has.claim else ()
    verb = (
        "XREADGROUP", "GROUP", seat.group, seat.consumer,
        "COUNT", count, "BLOCK", block_ms, *claim, "STREAMS",
    )  # fmt: skip
    return Call(verb, (seat.keys.stream,), (">",), _read)


def claim(seat: Seat, count: int, idle_ms: int) -> Call[list[Delivery]]:
    """Take entries that others have let lie for *idle_ms*, on any server."""
    args = (seat.group, seat.consumer, idle_ms, min(count, MOST_CLAIMED))
    return Call(_CLAIM, (seat.keys.stream,), args, _deliveries)


def recover(seat: Seat, held: Iterable[str]) -> Call[list[Delivery]]:
    """Take what the server has given this consumer in a reply that was lost."""
    args = (seat.group, seat.consumer, *held)
    return Call(_RECOVER, (seat.keys.stream,), args, _deliveries, repeatable=True)


def renew(seat: Seat, held: Iterable[str]) -> Call[list[str]]:
    """Keep entries out of others' hands; returns those that have been lost."""
    args = (seat.group, seat.consumer, *held)
    return Call(_RENEW, (seat.keys.stream,), args, _names, repeatable=True)


def give_back(seat: Seat, entries: Iterable[tuple[str, int]], idle_ms: int) -> Call[int]:
    """Let others have entries that this consumer will not run; each with its deliveries."""
    flat = [item for pair in entries for item in pair]
    args = (seat.group, seat.consumer, RETURNED, idle_ms, *flat)
    return Call(_GIVE_BACK, (seat.keys.stream,), args, int, repeatable=True)


def settle(seat: Seat, ts: int, begun: Sequence[Arg], ended: Sequence[Arg]) -> Call[list[str]]:
    """Tell that jobs begin, and end others; returns entries that were lost.

    *begun* has id, name and attempt of each, one after the other; *ended* has
    entry, id, name, attempt and duration.
    """
    where = (seat.keys.stream, seat.keys.events, seat.keys.stalls(""))
    head = (seat.group, seat.consumer, seat.events_cap, ts, len(begun) // 3)
    return Call(_SETTLE[seat.has.xackdel], where, (*head, *begun, *ended), _names, repeatable=True)


def done(seat: Seat, ran: Ran, value: bytes, ttl_s: int, ts: int) -> Call[bool]:
    """End a job and keep what its handler returned; false if the entry was lost."""
    keys = seat.keys
    where = (keys.stream, keys.events, keys.result(ran.id), keys.stalls(ran.id))
    args = (
        seat.group, seat.consumer, ran.entry, value, ttl_s, seat.events_cap, ts,
        ran.id, ran.name, ran.attempt, ran.duration_us,
    )  # fmt: skip
    return Call(_DONE[seat.has.xackdel], where, args, bool, repeatable=True)


def retry(
    seat: Seat, ran: Ran, body: bytes, wait_ms: int, reason: str, dialect: str, ts: int
) -> Call[bool | str]:
    """Let a job wait *wait_ms*, by the server's clock, for its next run: it is *body* by now.

    False if the entry was lost; the leader's name, and nothing done, if the
    leader could not read *dialect*.
    """
    keys = seat.keys
    where = (keys.stream, keys.delayed, keys.events, *keys.signs)
    told, member = to_store(ran.name, body, dialect)
    args = (
        seat.group, seat.consumer, ran.entry, told, member, seat.events_cap, ts,
        ran.id, ran.name, ran.attempt, _text(reason), ran.duration_us, wait_ms,
    )  # fmt: skip
    return Call(_RETRY[seat.has.xackdel], where, args, _retried, repeatable=True)


def bury(
    seat: Seat, entry: str, death: Death, dlq_cap: int, ts: int, duration_us: int | None = None
) -> Call[bool]:
    """Move a job to the dead-letter queue; false if the entry was lost.

    *duration_us*: how long its last run took; `None` if it was not run.
    """
    keys = seat.keys
    where = (keys.stream, keys.dlq, keys.events, keys.stalls(death.id))
    args = (
        seat.group, seat.consumer, entry, dlq_cap, death.reason, death.payload, death.name,
        _text(death.detail), seat.events_cap, ts, death.id, death.attempt,
        "" if duration_us is None else duration_us, _text(death.error_type),
        _text(death.traceback),
    )  # fmt: skip
    return Call(_BURY[seat.has.xackdel], where, args, bool, repeatable=True)


def limit(keys: Keys, most: int, duration_ms: int, wanted: int) -> Call[tuple[int, int]]:
    """Ask whether *wanted* jobs may start: how many may, and ms to wait for the others."""
    args = (most, duration_ms, wanted)
    return Call(_LIMIT, (keys.limiter,), args, tuple)


def is_paused(keys: Keys) -> Call[bool]:
    """Whether the queue is paused."""
    return Call("EXISTS", (keys.paused,), (), bool, repeatable=True)


def emit(seat: Seat, ts: int, name: str, id: str = "", *fields: Arg) -> Call[bytes]:
    """Tell of something that happened, with *fields* as names and values in turn."""
    head = ("MAXLEN", "~", seat.events_cap, "*", "e", name, "id", id, "ts", ts)
    return Call("XADD", (seat.keys.events,), (*head, *fields), bytes)


def set_progress(keys: Keys, id: str, percent: int, ttl_s: int | None = None) -> Call[Any]:
    """Keep how far a job has come; raises `InvalidValue` if *percent* is none."""
    args = (check_whole("percent", percent, 100), "EX", ttl_s or PROGRESS_TTL_S)
    return Call("SET", (keys.progress(id),), args, bool, repeatable=True)


def log_line(keys: Keys, id: str, line: str, ttl_s: int | None = None) -> tuple[Call[Any], ...]:
    """Keep a line of a job's own log, as long as a result; raises `InvalidFormat`."""
    if not isinstance(line, str):
        raise InvalidFormat("line", line, "text")
    args = ("MAXLEN", "~", LOG_LINES, "*", "line", _text(line))
    keep = Call("EXPIRE", (keys.log(id),), (ttl_s or PROGRESS_TTL_S,), bool, repeatable=True)
    return Call("XADD", (keys.log(id),), args, bytes), keep


def leave(seat: Seat) -> Call[bool]:
    """Take this consumer out of its group; false if there is something in its hands."""
    where = (seat.keys.stream, seat.keys.signs[3])
    return Call(_LEAVE, where, (seat.group, seat.consumer), bool, repeatable=True)


def connection_id() -> Call[int]:
    """Ask which connection this is, for `unblock`."""
    return Call("CLIENT ID", (), (), int)


def unblock(connection: int) -> Call[bool]:
    """Let a blocked read of another connection end as if its time were up."""
    return Call("CLIENT UNBLOCK", (), (connection,), bool)


def _read(reply: Any) -> list[Delivery]:
    return _deliveries(reply[0][1]) if reply else []


def _deliveries(rows: Any) -> list[Delivery]:
    # Without CLAIM an entry has two items, and this is its first delivery. A
    # deleted entry has no fields.
    return [
        Delivery(row[0].decode(), row[1], row[3] if len(row) > 2 else 0)  # noqa: PLR2004  (said above)
        for row in rows
        if row and row[1] is not None
    ]


def _retried(reply: int | bytes) -> bool | str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else bool(reply)


def _text(reason: str) -> bytes:
    """*reason* as bytes, whatever an exception quotes."""
    return reason.encode("utf-8", "backslashreplace")


def _names(reply: list[bytes]) -> list[str]:
    return [name.decode() for name in reply]
