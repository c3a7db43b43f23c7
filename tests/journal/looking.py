"""Helpers that read a journal, for tests that compare it with the messages sent."""

from __future__ import annotations

from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.ops import State
from tambomq.journal.wire import JournalRecord, record_of
from tambomq.store.sync import Store


def records(url: str, protocol: str, queue: str) -> list[JournalRecord]:
    """Return all records of a journal, in order."""
    store, keys = Store(url), JournalKeys(protocol, queue)
    found: list[JournalRecord] = []
    low = "-"
    try:
        while page := store.run(ops.read(keys, low)):
            found += [record_of(fields) for _, fields in page]
            low = f"({page[-1][0].decode()}"
    finally:
        store.close()
    return found


def bodies(url: str, protocol: str, queue: str) -> list[bytes | None]:
    """Return the bodies of all `sent` records, in order."""
    return [each.body for each in records(url, protocol, queue) if each.event == "sent"]


def state(url: str, protocol: str, queue: str) -> State | None:
    """Return what the journal holds."""
    store = Store(url)
    try:
        return store.run(ops.state(JournalKeys(protocol, queue)))
    finally:
        store.close()


def commit_all(url: str, protocol: str, queue: str, reader: str = "etl") -> int:
    """Read everything with *reader*."""
    store, keys = Store(url), JournalKeys(protocol, queue)
    try:
        return store.run(ops.commit(keys, reader, store.run(ops.last_id(keys)) or "0-0"))
    finally:
        store.close()
