"""The timeline of a message, from events, journal and what is stored. No Redis, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tambomq.bulk.excerpts import EntryExcerpt
from tambomq.console.messages.model import TimelineEntry
from tambomq.console.messages.phrases import count, duration, ordinal, size

Kind = Literal["added", "due", "started", "failed", "done", "dead", "other", "future"]
MAX_ENTRIES: Final = 500

_LONGEST_NUMBER: Final = 19


def event_entries(events: Sequence[EntryExcerpt]) -> list[TimelineEntry]:
    """Return what events of a ChasquiMQ job say; *events* are in their order."""
    found = []
    joined_ms: int | None = None
    for event, at_ms in zip(events, _in_order(events), strict=True):
        kind, text = _event(event)
        if event.text(b"e") == "active" and joined_ms is not None and at_ms > joined_ms:
            text += f", after {duration((at_ms - joined_ms) / 1000)} in line"
        joined_ms = at_ms if event.text(b"e") == "waiting" else None
        found.append(TimelineEntry(at_ms=at_ms, kind=kind, text=text, source="events"))
    return found


def _in_order(events: Sequence[EntryExcerpt]) -> list[int]:
    """Return the time of each; none is later than the next, as events of a batch may seem to be."""
    times = [time_of(event) for event in events]
    for index in range(len(times) - 2, -1, -1):
        times[index] = min(times[index], times[index + 1])
    return times


def _event(event: EntryExcerpt) -> tuple[Kind, str]:
    attempt = event.text(b"attempt")
    run = f"Run {attempt}" if attempt else "A run"
    duration_us = _number(event, b"duration_us")
    took = "" if duration_us is None else f" after {duration(duration_us / 1e6)}"
    reason = event.text(b"reason")
    because = f": {reason}" if reason else ""
    runs = f" after {count(int(attempt), 'run')}" if attempt.isascii() and attempt.isdigit() else ""
    texts: dict[str, tuple[Kind, str]] = {
        "waiting": ("due", "Joined the line"),
        "delayed": ("added", f"Added with a delay{_of(event, b'delay_ms')}"),
        "active": ("started", f"{run} began"),
        "completed": ("done", f"{run} completed{took}"),
        "failed": ("failed", f"{run} failed{took}{because}"),
        "retry-scheduled": ("due", f"{run} was set{_of(event, b'backoff_ms', ' for ')} later"),
        "dlq": ("dead", f"Became a dead letter{runs}{because}"),
        "cancelled": ("done", f"Cancelled{because}"),
        "moved": ("done", "Moved to another queue"),
        "progress": ("other", f"Progress: {event.text(b'progress')}"),
    }
    name = event.text(b"e")
    return texts.get(name, ("other", f"{name or 'An event without a name'}{because}"))


def journal_entries(entries: Sequence[EntryExcerpt]) -> list[TimelineEntry]:
    """Return what journal entries of a message say, of any protocol."""
    return [
        TimelineEntry(at_ms=time_of(entry), kind=kind, text=text, source="journal")
        for entry in entries
        for kind, text in (_journal(entry),)
    ]


def _journal(entry: EntryExcerpt) -> tuple[Kind, str]:
    receiver = entry.text(b"n")
    match entry.text(b"e"):
        case "sent":
            body = entry.fields.get(b"d")
            long = "" if body is None else f", {size(body.size)}"
            delay = (
                f", with a delay{_of(entry, b'delay_ms')}" if b"delay_ms" in entry.fields else ""
            )
            receivers = _number(entry, b"to")
            to = "" if receivers is None else f", to {count(receivers, 'consumer')}"
            return "added", f"Added{long}{delay}{to}"
        case "received":
            times = _number(entry, b"a")
            again = f", for the {ordinal(times)} time" if times and times > 1 else ""
            return "started", f"Received by a consumer{again}"
        case "delivered":
            return "done", f"Delivered to {receiver}" if receiver else "Delivered"
        case "deleted":
            return "done", "Deleted: a consumer was done with it"
        case "dead":
            reason = entry.text(b"r")
            return "dead", f"Became a dead letter: {reason}" if reason else "Became a dead letter"
        case other:
            return "other", other or "An entry without an event"


def merged(*parts: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Return all entries, newest first; of several at one time the last one given comes first."""
    entries = [each for part in parts for each in part]
    entries.reverse()
    entries.sort(key=lambda each: each.at_ms or 0, reverse=True)
    return entries[:MAX_ENTRIES]


def time_of(entry: EntryExcerpt) -> int:
    """Return the time of an event or a journal entry: its field, else that of its stream id."""
    return _number(entry, b"ts") or int(entry.id.partition("-")[0])


def _of(entry: EntryExcerpt, field: bytes, between: str = " of ") -> str:
    ms = _number(entry, field)
    return "" if ms is None else f"{between}{duration(ms / 1000)}"


def _number(entry: EntryExcerpt, field: bytes) -> int | None:
    value = entry.text(field)
    return (
        int(value)
        if value.isascii() and value.isdigit() and len(value) <= _LONGEST_NUMBER
        else None
    )
