"""Readers of a journal: commits, and trimming of what all readers have committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.errors import InvalidFormat, WrongType
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds
from tambomq.journal.reader import JournalReader
from tambomq.store.sync import Store
from tests.servers import Server

KEYS = JournalKeys("kqueue", "orders")
ENTRY = 100


@pytest.fixture
def store(each_server: Server) -> Iterator[Store]:
    store = Store(each_server.url)
    yield store
    store.close()


def fill(store: Store, count: int, body: bytes = b"x") -> list[str]:
    """Record *count* messages; return the ids of their entries."""
    last = store.run(ops.last_id(KEYS))
    assert store.run(ops.append_bounded(KEYS, DEFAULT_BOUNDS, [(1, body)] * count)) == count
    low = "-" if last is None else f"({last}"
    return [id.decode() for id, _ in store.run(ops.read(KEYS, low))]


def state_of(store: Store) -> ops.State:
    state = store.run(ops.state(KEYS))
    assert state is not None
    return state


def test_a_queue_without_a_journal_has_no_state(store: Store) -> None:
    assert store.run(ops.state(KEYS)) is None


def test_committed_entries_are_trimmed_except_the_last(store: Store) -> None:
    ids = fill(store, 10)
    assert store.run(ops.commit(KEYS, "etl", ids[6])) == 6
    assert store.run(ops.first_id(KEYS)) == ids[6]
    assert state_of(store).entries == 4


def test_one_commit_trims_a_part_of_a_large_journal(store: Store, each_server: Server) -> None:
    for _ in range(7):
        fill(store, 1000)
    ids = [id.decode() for id, _ in store.run(ops.read(KEYS, "-", count=7000))]
    first, small = ops.commit(KEYS, "etl", ids[6950]), ops.commit(KEYS, "etl", "0-0")
    trimmed = store.run(first)
    assert ops.MORE_TRIMMED <= trimmed <= 2000
    assert store.follow(ops.commit_and_trim((small, first))) == 6950 - trimmed
    assert store.run(ops.first_id(KEYS)) == ids[6950]
    assert state_of(store).bytes == 50 * (ENTRY + 1)
    with JournalReader(each_server.url, "kqueue", "orders", name="etl") as journal:
        fill(store, 1000)
        fill(store, 1000)
        fill(store, 1000)
        assert journal.commit(journal.last_id() or "") == 3049


def test_the_slowest_reader_decides(store: Store) -> None:
    ids = fill(store, 10)
    assert store.run(ops.commit(KEYS, "slow", "0-0")) == 0
    assert store.run(ops.commit(KEYS, "fast", ids[9])) == 0
    assert store.run(ops.commit(KEYS, "slow", ids[4])) == 4
    assert store.run(ops.first_id(KEYS)) == ids[4]


def test_a_reader_that_is_forgotten_holds_nothing_back(store: Store) -> None:
    ids = fill(store, 10)
    store.run(ops.commit(KEYS, "slow", "0-0"))
    store.run(ops.commit(KEYS, "fast", ids[8]))
    assert store.run(ops.forget(KEYS, "slow"))
    assert store.run(ops.first_id(KEYS)) == ids[8]
    assert not store.run(ops.forget(KEYS, "slow"))
    assert [each.name for each in state_of(store).readers] == ["fast"]


def test_forgetting_the_last_reader_trims_nothing(store: Store) -> None:
    ids = fill(store, 3)
    store.run(ops.commit(KEYS, "etl", ids[1]))
    assert store.run(ops.forget(KEYS, "etl"))
    assert state_of(store).entries == 2


def test_an_older_commit_changes_nothing(store: Store) -> None:
    ids = fill(store, 5)
    store.run(ops.commit(KEYS, "etl", ids[3]))
    assert store.run(ops.commit(KEYS, "etl", ids[1])) == 0
    assert state_of(store).readers[0].committed == ids[3]


def test_a_commit_between_two_entries_keeps_the_later(store: Store) -> None:
    ids = fill(store, 3)
    ms, seq = ids[1].split("-")
    store.run(ops.commit(KEYS, "etl", f"{ms}-{int(seq) + 1}" if ids[2] != f"{ms}-1" else ids[1]))
    assert store.run(ops.last_id(KEYS)) == ids[2]


def test_the_state_has_bytes_and_lags(store: Store) -> None:
    ids = fill(store, 4, b"1234")
    store.run(ops.commit(KEYS, "etl", ids[1]))
    state = state_of(store)
    assert state.bytes == 3 * (ENTRY + 4)
    assert (state.first, state.last) == (ids[1], ids[3])
    (reader,) = state.readers
    assert reader.lag_bytes == 2 * (ENTRY + 4)
    assert reader.lag_ms == int(ids[3].split("-")[0]) - int(ids[1].split("-")[0])
    store.run(ops.commit(KEYS, "etl", ids[3]))
    assert state_of(store).readers[0].lag_bytes == 0


def test_a_commit_frees_space_in_a_full_journal(store: Store) -> None:
    bounds = JournalBounds(max_entries=3)
    assert store.run(ops.append_bounded(KEYS, bounds, [(1, b"a")] * 5)) == 3
    assert state_of(store).dropped == 2
    last = store.run(ops.last_id(KEYS))
    assert last is not None
    store.run(ops.commit(KEYS, "etl", last))
    assert store.run(ops.append_bounded(KEYS, bounds, [(1, b"a")] * 5, missed=4)) == 2
    assert state_of(store).dropped == 2 + 3 + 4


def test_a_journal_is_bounded_in_bytes_too(store: Store) -> None:
    bounds = JournalBounds(max_bytes=2 * (ENTRY + 1000))
    assert store.run(ops.append_bounded(KEYS, bounds, [(1, b"x" * 1000)] * 3)) == 2
    assert state_of(store).bytes == bounds.max_bytes


def test_a_deleted_journal_starts_empty(store: Store, each_server: Server) -> None:
    bounds = JournalBounds(max_entries=1000, max_bytes=1024)
    assert store.run(ops.append_bounded(KEYS, bounds, [(1, b"x" * 400)] * 3)) == 2
    with redis.Redis.from_url(each_server.url) as db:
        db.delete(KEYS.journal)
    assert store.run(ops.append_bounded(KEYS, bounds, [(1, b"x" * 400)] * 3)) == 2
    assert state_of(store).bytes == 2 * (ENTRY + 400)


@pytest.mark.parametrize("id", ["", "5", "-", "+", "1-", "(1-0", "1-0 ", f"{1 << 64}-0", "x-y"])
def test_an_invalid_entry_id_is_refused(id: str) -> None:
    with pytest.raises(InvalidFormat):
        ops.commit(KEYS, "etl", id)


@pytest.mark.parametrize("reader", ["", "a b", "x" * 161, "é"])
def test_an_invalid_reader_name_is_refused(reader: str) -> None:
    for call in (lambda: ops.commit(KEYS, reader, "1-0"), lambda: ops.forget(KEYS, reader)):
        with pytest.raises(InvalidFormat):
            call()


def test_a_key_of_another_type_makes_a_commit_fail(store: Store, each_server: Server) -> None:
    with redis.Redis.from_url(each_server.url) as db:
        db.set(KEYS.journal, "x")
        with pytest.raises(WrongType):
            store.run(ops.commit(KEYS, "etl", "1-0"))
        assert not db.exists(KEYS.state)


ids = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(st.lists(ids, min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_furthest_commit_of_a_reader_counts(
    server: Server, given_ids: list[tuple[int, int]]
) -> None:
    store = Store(server.url)
    try:
        store.run(ops.forget(KEYS, "etl"))
        for ms, seq in given_ids:
            store.run(ops.commit(KEYS, "etl", f"{ms}-{seq}"))
        assert state_of(store).readers[0].committed == "{}-{}".format(*max(given_ids))
    finally:
        store.close()
