"""Dead letters are listed, and replayed."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BackoffSpec
from tambomq.chasqui.job import Envelope, RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.dlq import PAGE
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.errors import InvalidValue, QueueFull
from tests.chasqui import working
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import bury, emitted_events, events, ids, jobs, rows
from tests.rsmq.stored import at_rest

server = working.server

RETRY = RetryOverride(3, BackoffSpec("fixed", 5))


def body(id: str, attempt: int = 2, retry: RetryOverride | None = None) -> bytes:
    return encode_envelope(Envelope(id, b"\x01", 1_800_000_000_000, attempt, retry))


def test_a_new_queue_has_no_dead_letters(connect: Connect, db: redis.Redis) -> None:
    queue = connect()
    assert queue.peek_dlq() == []
    assert queue.replay_dlq() == 0
    assert db.dbsize() == 0


def test_a_dead_letter_is_shown_with_all_its_fields(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    fields: dict[Any, Any] = {"d": body("a"), "n": "send", "source_id": "1-0", "reason": "x"}
    id = cast("bytes", db.xadd(keys.dlq, {**fields, "detail": "why"})).decode()
    before = at_rest(db)
    [letter] = connect().peek_dlq()
    assert dict(letter) == {
        "dlq_id": id,
        "source_id": "1-0",
        "reason": "x",
        "detail": "why",
        "payload": body("a"),
        "name": "send",
    }
    assert at_rest(db) == before


def test_the_oldest_letters_are_shown_first_up_to_the_limit(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    buried = [bury(db, keys, body(str(place))) for place in range(30)]
    queue = connect()
    assert [letter.dlq_id for letter in queue.peek_dlq()] == buried[:20]
    assert [letter.dlq_id for letter in queue.peek_dlq(limit=3)] == buried[:3]
    assert len(queue.peek_dlq(limit=1000)) == 30
    assert queue.peek_dlq(limit=0) == []


def test_an_invalid_dead_letter_is_shown_unchanged(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.xadd(keys.dlq, {"other": "field"})
    db.xadd(keys.dlq, {"d": b"\xff\xff", "n": b"\xff", "reason": "decode_failed"})
    none, bad = connect().peek_dlq()
    assert (none.payload, none.reason, none.detail) == (b"", "", None)
    assert (bad.payload, bad.name, bad.reason) == (b"\xff\xff", "\ufffd", "decode_failed")


# ── replay ───────────────────────────────────────────────────────────────────


def test_a_replayed_letter_waits_as_before_its_first_run(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    bury(db, keys, body("a", 2, RETRY), "send")
    bury(db, keys, body("b", 0))
    assert connect().replay_dlq() == 2
    assert db.xlen(keys.dlq) == 0
    [(name, first), (no_name, second)] = jobs(db, keys)
    assert (name, first.id, first.attempt, first.retry) == ("send", "a", 0, RETRY)
    assert (no_name, second.id, second.attempt) == ("", "b", 0)
    assert first.created_at_ms == 1_800_000_000_000


def test_a_replay_emits_an_event(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    bury(db, keys, body("a"), "send")
    connect().replay_dlq()
    [event] = events(db, keys)
    assert (event.name, event.job_id, event.job_name) == ("waiting", "a", "send")
    bury(db, keys, body("b"))
    connect(events_enabled=False).replay_dlq()
    assert emitted_events(db, keys) == [("waiting", "a")]


def test_invalid_dead_letters_stay_and_do_not_block_others(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for _ in range(PAGE + 5):
        bury(db, keys, b"\xff")
    for place in range(5):
        bury(db, keys, body(str(place)))
    queue = connect()
    assert queue.replay_dlq(limit=3) == 3
    assert ids(db, keys) == ["0", "1", "2"]
    assert queue.replay_dlq() == 2
    assert queue.replay_dlq() == 0
    assert db.xlen(keys.dlq) == PAGE + 5


def test_more_than_a_page_is_replayed_in_order(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    names = [str(place) for place in range(2 * PAGE + 3)]
    for name in names:
        bury(db, keys, body(name))
    assert connect().replay_dlq(limit=10_000) == len(names)
    assert ids(db, keys) == names


def test_letters_are_chosen_by_id(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    buried = [bury(db, keys, body(id)) for id in "abcd"]
    queue = connect()
    assert queue.replay_dlq(ids=[buried[2], buried[0], "0-1"]) == 2
    assert ids(db, keys) == ["a", "c"]
    assert queue.replay_dlq(ids=[buried[0]]) == 0
    assert queue.replay_dlq(ids=[]) == 0
    assert [letter.dlq_id for letter in queue.peek_dlq()] == [buried[1], buried[3]]


def test_letters_are_chosen_by_a_predicate(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    for id, reason in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")):
        bury(db, keys, body(id), reason=reason)
    bury(db, keys, b"\xff", reason="x")
    queue = connect()
    assert queue.replay_dlq(limit=2, where=lambda letter: letter.reason == "x") == 2
    assert ids(db, keys) == ["a", "c"]
    assert queue.replay_dlq(where=lambda letter: letter["reason"] == "none") == 0


def test_a_full_queue_takes_as_many_as_it_can(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    for id in "abc":
        bury(db, keys, body(id))
    small = connect(max_stream_len=2)
    assert small.replay_dlq() == 2
    assert ids(db, keys) == ["a", "b"]
    with pytest.raises(QueueFull):
        small.replay_dlq()
    assert db.xlen(keys.dlq) == 1


def test_a_letter_is_replayed_once_however_many_ask(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    bury(db, keys, body("a"))
    queue, other = connect(), connect()

    def meanwhile(_: Any) -> bool:
        # Another client acts between peek and replay.
        return other.replay_dlq() == 1

    assert queue.replay_dlq(where=meanwhile) == 0
    assert ids(db, keys) == ["a"]


def test_a_replayed_letter_has_only_its_name_and_its_envelope(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    bury(db, keys, body("a") + b"trailing", "send")
    connect().replay_dlq()
    [(_, fields)] = rows(db, keys.stream)
    assert fields == [b"d", body("a", 0), b"n", b"send"]


@pytest.mark.parametrize("limit", [-1, 1.5, "5", None, True])
def test_a_limit_is_a_whole_number(connect: Connect, limit: Any) -> None:
    queue = connect()
    for ask in (queue.peek_dlq, queue.replay_dlq, queue.get_repeatable_jobs):
        with pytest.raises(InvalidValue, match="limit"):
            ask(limit)
    assert queue.replay_dlq(0) == 0
