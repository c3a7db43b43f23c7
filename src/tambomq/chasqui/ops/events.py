"""What those who listen ask of Redis, as calls and plans nobody has made yet."""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.ends import PAGE, End, Ends, Look
from tambomq.chasqui.job import U32, QueueEvent, check_whole
from tambomq.chasqui.keys import Keys, check_job_id
from tambomq.chasqui.wire import by_name
from tambomq.chasqui.wire_records import read_event
from tambomq.store.call import Call, Plan, load_script, results

_ENTERED = load_script("tambomq.chasqui", "entered", "prefix")


def last_id(keys: Keys) -> Call[str]:
    """Return the place of the last event: what comes later is new."""
    args = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.events,), args, _last, repeatable=True)


def read(keys: Keys, after: str, count: int, block_ms: int) -> Call[list[QueueEvent]]:
    """Return events later than *after*; waits for the first up to *block_ms*."""
    verb = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS")
    return Call(verb, (keys.events,), (after,), _events, repeatable=True)


def read_back(keys: Keys, before: str, count: int) -> Call[list[QueueEvent]]:
    """Return events up to *before*, the newest first."""
    args = (before, "-", "COUNT", count)
    return Call("XREVRANGE", (keys.events,), args, _page, repeatable=True)


def read_on(keys: Keys, after: str, count: int) -> Call[list[QueueEvent]]:
    """Return events later than *after* that are there already."""
    args = (f"({after}", "+", "COUNT", count)
    return Call("XRANGE", (keys.events,), args, _page, repeatable=True)


def log_lines(keys: Keys, job_id: str, limit: int) -> Call[list[str]]:
    """Return up to *limit* lines that the handler of a job has logged, the oldest first."""
    args = ("-", "+", "COUNT", check_whole("limit", limit, U32, least=1))
    return Call("XRANGE", (keys.log(check_job_id(job_id)),), args, _lines, repeatable=True)


def look_back(keys: Keys, ends: Ends, look: Look) -> Plan[None]:
    """Let *ends* know older events, until it knows what *look* asks for."""
    pages = 0
    while not ends.reach(look.from_ms) and (look.pages is None or pages < look.pages):
        page: list[QueueEvent] = results((yield (read_back(keys, ends.before, PAGE),)))[0]
        ends.prepend(page, PAGE)
        pages += 1


def entered(keys: Keys, job_id: str, after: str) -> Plan[bool]:
    """Whether the job waits or runs by an entry that is later than *after*."""
    while True:
        call = Call(_ENTERED, (keys.stream,), (after, job_id), _entered, repeatable=True)
        found: bool | str = results((yield (call,)))[0]
        if isinstance(found, bool):
            return found
        after = found


def is_over(keys: Keys, ends: Ends, job_id: str, end: End) -> Plan[bool]:
    """Whether the job has not come in anew, under the same id, since *end*."""
    if (yield from entered(keys, job_id, end.before)):
        return False
    # It may have come in, run and ended while we looked: then there is a later end by now.
    more = True
    while more:
        after = ends.newest
        page: list[QueueEvent] = results((yield (read_on(keys, after, PAGE),)))[0]
        ends.append(after, page)
        more = len(page) == PAGE
    return ends.of(job_id) == end


def _last(reply: list[Any]) -> str:
    return reply[0][0].decode() if reply else "0-0"


def _events(reply: Any) -> list[QueueEvent]:
    return _page(reply[0][1]) if reply else []


def _page(reply: Any) -> list[QueueEvent]:
    return [read_event(id, fields) for id, fields in reply]


def _entered(reply: int | bytes) -> bool | str:
    return reply.decode() if isinstance(reply, bytes) else bool(reply)


def _lines(rows: list[Any]) -> list[str]:
    return [by_name(fields).get(b"line", b"").decode("utf-8", "replace") for _, fields in rows]
