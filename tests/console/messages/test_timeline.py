"""Events and journal entries as sentences, newest first."""

from __future__ import annotations

import pytest

from tambomq.bulk.excerpts import EntryExcerpt, Excerpt
from tambomq.console.messages.model import TimelineEntry
from tambomq.console.messages.timeline import event_entries, journal_entries, merged


def entry(ms: int, **fields: str) -> EntryExcerpt:
    values = {
        name.encode(): Excerpt(value.encode(), b"", len(value.encode()))
        for name, value in fields.items()
    }
    return EntryExcerpt(f"{ms}-0", values)


def test_a_job_is_followed_from_its_line_to_its_end() -> None:
    events = [
        entry(1000, e="delayed", delay_ms="5000"),
        entry(6000, e="waiting"),
        entry(7500, e="active", attempt="1"),
        entry(8700, e="failed", attempt="1", reason="no card", duration_us="1200000"),
        entry(8700, e="retry-scheduled", attempt="2", backoff_ms="300000"),
        entry(9000, e="progress", progress="40"),
        entry(9100, e="completed", attempt="2", duration_us="11000"),
    ]
    assert [(each.kind, each.text) for each in event_entries(events)] == [
        ("added", "Added with a delay of 5 s"),
        ("due", "Joined the line"),
        ("started", "Run 1 began, after 1.5 s in line"),
        ("failed", "Run 1 failed after 1.2 s: no card"),
        ("due", "Run 2 was set for 5 m later"),
        ("other", "Progress: 40"),
        ("done", "Run 2 completed after 11 ms"),
    ]


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        (
            {"e": "dlq", "attempt": "3", "reason": "retries_exhausted"},
            "dead",
            "Became a dead letter after 3 runs: retries_exhausted",
        ),
        ({"e": "cancelled", "reason": "a duplicate"}, "done", "Cancelled: a duplicate"),
        ({"e": "moved"}, "done", "Moved to another queue"),
        ({"e": "new-in-2031"}, "other", "new-in-2031"),
        ({}, "other", "An event without a name"),
        ({"e": "dlq", "attempt": "²"}, "dead", "Became a dead letter"),
    ],
)
def test_every_event_has_a_sentence(fields: dict[str, str], kind: str, text: str) -> None:
    (found,) = event_entries([entry(1, **fields)])
    assert (found.kind, found.text, found.source) == (kind, text, "events")


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"e": "sent", "d": "hello", "to": "3"}, "added", "Added, 5 bytes, to 3 consumers"),
        ({"e": "sent", "delay_ms": "2000"}, "added", "Added, with a delay of 2 s"),
        ({"e": "received", "a": "1"}, "started", "Received by a consumer"),
        ({"e": "received", "a": "2"}, "started", "Received by a consumer, for the 2nd time"),
        ({"e": "delivered", "n": "alice"}, "done", "Delivered to alice"),
        ({"e": "deleted"}, "done", "Deleted: a consumer was done with it"),
        ({"e": "dead", "r": "rejected"}, "dead", "Became a dead letter: rejected"),
        ({"e": "later"}, "other", "later"),
    ],
)
def test_every_journal_entry_has_a_sentence(fields: dict[str, str], kind: str, text: str) -> None:
    (found,) = journal_entries([entry(1, **fields)])
    assert (found.kind, found.text, found.source) == (kind, text, "journal")


def test_an_event_is_never_shown_after_the_next_one() -> None:
    """Events of one batch carry the time of their worker, or of the batch."""
    events = [entry(105, e="active", ts="101"), entry(106, e="failed", ts="85")]
    assert [each.at_ms for each in event_entries(events)] == [85, 85]


def test_all_sources_are_merged_newest_first() -> None:
    one = TimelineEntry(at_ms=1, kind="added", text="one")
    two = TimelineEntry(at_ms=2, kind="due", text="two")
    also_two = TimelineEntry(at_ms=2, kind="started", text="also two")
    three = TimelineEntry(at_ms=3, kind="future", text="three")
    assert merged([three], [one, two, also_two]) == [three, also_two, two, one]
