"""Journals on real servers: written, read in pages, trimmed, found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tambomq.errors import InvalidValue, WrongType
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import JournalRecord, record_of
from tambomq.store.sync import Store
from tests.servers import Server

KEYS = JournalKeys("kqueue", "orders")


@pytest.fixture
def store(each_server: Server) -> Iterator[Store]:
    store = Store(each_server.url)
    yield store
    store.close()


def test_appended_records_are_read_in_order(store: Store) -> None:
    records = [JournalRecord(at, b"%d" % at, id=f"m{at}") for at in range(2500)]
    ids = store.follow(ops.append(KEYS, iter(records)))
    assert len(set(ids)) == 2500
    found, low = [], "-"
    while page := store.run(ops.read(KEYS, low)):
        assert len(page) <= ops.COUNT
        found += page
        low = f"({page[-1][0].decode()}"
    assert [id.decode() for id, _ in found] == ids
    assert [record_of(fields) for _, fields in found] == records


def test_the_first_and_last_id_and_the_length_are_returned(store: Store) -> None:
    assert store.run(ops.first_id(KEYS)) is None
    assert store.run(ops.last_id(KEYS)) is None
    ids = store.follow(ops.append(KEYS, [JournalRecord(1), JournalRecord(2), JournalRecord(3)]))
    assert store.run(ops.first_id(KEYS)) == ids[0]
    assert store.run(ops.last_id(KEYS)) == ids[-1]
    assert store.run(ops.length(KEYS)) == 3


def test_trimming_keeps_the_entry_it_names_and_all_later(store: Store) -> None:
    ids = store.follow(ops.append(KEYS, [JournalRecord(at) for at in range(500)]))
    assert store.run(ops.trim(KEYS, ids[123])) == 123
    assert store.run(ops.first_id(KEYS)) == ids[123]
    assert store.run(ops.trim(KEYS, ids[123])) == 0


def test_a_record_that_cannot_be_written_writes_nothing(store: Store) -> None:
    with pytest.raises(InvalidValue):
        store.follow(ops.append(KEYS, [JournalRecord(1), JournalRecord(-1)]))
    assert store.run(ops.length(KEYS)) == 0


def test_journals_are_found_by_protocol(store: Store) -> None:
    names = [f"q{number}:*" for number in range(40)]
    for name in names:
        store.follow(ops.append(JournalKeys("gomq", name), [JournalRecord(1)]))
    store.follow(ops.append(JournalKeys("rsmq", "another"), [JournalRecord(1)]))
    cursor, found = b"0", set[str]()
    while True:
        cursor, some = store.run(ops.queues("gomq", cursor))
        found.update(some)
        if cursor == b"0":
            break
    assert found == set(names)


def test_a_key_of_another_type_raises(store: Store, each_server: Server) -> None:
    with redis.Redis.from_url(each_server.url) as db:
        db.set(KEYS.journal, "x")
    with pytest.raises(WrongType):
        store.run(ops.read(KEYS))
    with pytest.raises(WrongType):
        store.follow(ops.append(KEYS, [JournalRecord(1)]))
