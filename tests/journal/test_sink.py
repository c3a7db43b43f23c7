"""Chunks of journal entries: appended once, whole, and in the form that `append` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.errors import WrongType
from tambomq.journal import keys, ops
from tambomq.journal import sink as sink_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import JournalRecord, record_of
from tambomq.store.sync import Store

JOURNAL = JournalKeys("gomq", "orders")
FENCE = JOURNAL.fence("query")
FIRST = (0, "0/0/0", "one", 60)
FIELDS = ((keys.EVENT, b"sent"), (keys.ID, None), (keys.AT, b"7"), (keys.BODY, None))
values = st.none() | st.binary(max_size=3)


def record(store: Store, *entries: sink_ops.Entry, token: tuple[int, str, str, int] = FIRST) -> int:
    return store.run(sink_ops.record(JOURNAL, "query", token, FIELDS, entries))


def recorded(store: Store) -> Sequence[list[bytes]]:
    return [fields for _, fields in store.run(ops.read(JOURNAL))]


def test_the_fence_is_named_after_its_journal() -> None:
    assert FENCE == "{tambo:gomq:orders}:fence:query"


def test_a_chunk_that_is_recorded_twice_is_there_once(each: Store, each_db: redis.Redis) -> None:
    entries = ((b"a", b"one"), (b"b", b""))
    assert (record(each, *entries), record(each, *entries)) == (1, 0)
    assert [record_of(fields) for fields in recorded(each)] == [
        JournalRecord(7, b"one", id="a"),
        JournalRecord(7, b"", id="b"),
    ]
    assert each_db.hgetall(FENCE) == {b"0/0/0": b"one"}
    assert 0 < each_db.ttl(FENCE) <= 60


def test_a_chunk_is_stored_in_the_form_of_append(each: Store) -> None:
    record(each, (b"a", b"one"))
    each.follow(ops.append(JOURNAL, [JournalRecord(7, b"one", id="a")]))
    ours, theirs = recorded(each)
    assert ours == theirs


def test_other_entries_under_a_token_or_a_batch_that_is_over_are_not_recorded(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.hset(FENCE, mapping={"9/0/0": "one", "floor": 9})
    assert record(each, (b"a", b"b"), token=(9, "9/0/0", "two", 60)) == -1
    assert record(each, (b"a", b"b"), token=(8, "8/0/0", "two", 60)) == -2
    assert each_db.keys() == [FENCE.encode()]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(st.tuples(values, values), min_size=1, max_size=8))
def test_entries_may_leave_out_any_of_their_fields(
    store: Store, entries: list[tuple[bytes | None, bytes | None]]
) -> None:
    store.run(sink_ops.record(JOURNAL, "query", (0, repr(entries), "x", 60), FIELDS, entries))
    found = recorded(store)[-len(entries) :]
    for (id, body), fields in zip(entries, found, strict=True):
        expected = [b"e", b"sent", *([b"id", id] if id is not None else []), b"ts", b"7"]
        assert fields == [*expected, *([b"d", body] if body is not None else [])]
    store.run(ops.trim(JOURNAL, "9999999999999-0"))


def test_all_fields_may_have_common_values(each: Store) -> None:
    same = ((keys.EVENT, b"sent"), (keys.AT, b"7"))
    assert each.run(sink_ops.record(JOURNAL, "query", FIRST, same, [(), ()])) == 1
    assert recorded(each) == [[b"e", b"sent", b"ts", b"7"]] * 2


@pytest.mark.parametrize("broken", [JOURNAL.journal, FENCE])
def test_a_key_of_another_type_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, broken: str
) -> None:
    each_db.set(broken, "no such thing")
    with pytest.raises(WrongType):
        record(each, (b"a", b"b"))
    assert set(cast("Any", each_db.keys())) == {broken.encode()}


def test_the_call_may_be_repeated() -> None:
    assert sink_ops.record(JOURNAL, "query", FIRST, FIELDS, [(b"a", b"b")]).repeatable
