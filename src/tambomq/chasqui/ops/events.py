"""Calls and plans that read the events stream and job logs."""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.job import U32, QueueEvent, check_whole
from tambomq.chasqui.keys import Keys, check_job_id
from tambomq.chasqui.ops.ended_jobs import PAGE, EndedJobs, JobEnd, LookBackLimit
from tambomq.chasqui.wire.envelope import by_name
from tambomq.chasqui.wire.records import read_event
from tambomq.store.call import Call, Plan, load_script, results

_LOCATE = load_script("tambomq.chasqui.ops", "locate")


def last_id(keys: Keys) -> Call[str]:
    """Return the id of the newest event; 0-0 if there is none."""
    args = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.events,), args, _last, repeatable=True)


def read(keys: Keys, after: str, count: int, block_ms: int) -> Call[list[QueueEvent]]:
    """Return events after *after*; waits up to *block_ms* for the first."""
    verb = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS")
    return Call(verb, (keys.events,), (after,), _events, repeatable=True)


def read_back(keys: Keys, before: str, count: int) -> Call[list[QueueEvent]]:
    """Return events up to *before*, newest first."""
    args = (before, "-", "COUNT", count)
    return Call("XREVRANGE", (keys.events,), args, _page, repeatable=True)


def read_on(keys: Keys, after: str, count: int) -> Call[list[QueueEvent]]:
    """Return events after *after* without waiting."""
    args = (f"({after}", "+", "COUNT", count)
    return Call("XRANGE", (keys.events,), args, _page, repeatable=True)


def log_lines(keys: Keys, job_id: str, limit: int) -> Call[list[str]]:
    """Return up to *limit* log lines of a job, the oldest first."""
    args = ("-", "+", "COUNT", check_whole("limit", limit, U32, minimum=1))
    return Call("XRANGE", (keys.log(check_job_id(job_id)),), args, _lines, repeatable=True)


def look_back(keys: Keys, ends: EndedJobs, look: LookBackLimit) -> Plan[None]:
    """Read older events into *ends*, as far back as *look* says."""
    pages = 0
    while not ends.covers(look.from_ms) and (look.pages is None or pages < look.pages):
        page: list[QueueEvent] = results((yield (read_back(keys, ends.before, PAGE),)))[0]
        ends.prepend(page, PAGE)
        pages += 1


def find_entry(stream: str, job_id: str, after: str) -> Plan[list[Any] | None]:
    """Return the entry and fields of the first job with this id after *after*, in any stream."""
    while True:
        call = Call(_LOCATE, (stream,), (after, job_id), _located, repeatable=True)
        found: list[Any] | str | None = results((yield (call,)))[0]
        if not isinstance(found, str):
            return found
        after = found


def entered(keys: Keys, job_id: str, after: str) -> Plan[bool]:
    """Whether the stream has an entry of the job after *after*."""
    return (yield from find_entry(keys.stream, job_id, after)) is not None


def is_over(keys: Keys, ends: EndedJobs, job_id: str, end: JobEnd) -> Plan[bool]:
    """Whether *end* is final: the job was not added again under the same id since."""
    if (yield from entered(keys, job_id, end.before)):
        return False
    # It may have been added, run and ended again meanwhile: then there is a later end by now.
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


def _located(reply: Any) -> list[Any] | str | None:
    return reply.decode() if isinstance(reply, bytes) else reply or None


def _lines(rows: list[Any]) -> list[str]:
    return [by_name(fields).get(b"line", b"").decode("utf-8", "replace") for _, fields in rows]
