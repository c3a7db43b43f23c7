"""What leaders ask of Redis, and how they read the answers. No server."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui import lead_ops
from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.lead_ops import Due, Office, Promotion
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.wire import decode_envelope, decode_member
from tambomq.errors import InvalidFormat
from tambomq.store.call import Call, Script
from tambomq.store.trip import slot_of
from tests.chasqui.leading import every

KEYS = Keys("orders")
OFFICE = Office(KEYS, "tambo-me", batch=7, cap=8, dlq_cap=9, events_cap=10)
NOW = 1_800_000_000_000

ALL: list[Call[Any]] = [
    lead_ops.lead(OFFICE, KEYS.promoter_lock),
    lead_ops.resign(OFFICE, KEYS.promoter_lock),
    lead_ops.promote(OFFICE),
    lead_ops.forget_indexes(KEYS, ["a", "b"]),
    lead_ops.due_specs(OFFICE, NOW),
    lead_ops.late_specs(OFFICE, NOW, 3),
    lead_ops.next_fire(KEYS),
    lead_ops.spec_body(KEYS, "k"),
    lead_ops.put_off(OFFICE, Due("k", NOW), NOW),
    lead_ops.fire(OFFICE, every(), "k", NOW, 1, NOW + 1, NOW),
    lead_ops.drop_spec(OFFICE, "k", b"body", "why", NOW),
]


def jobs(call: Call[Any]) -> list[tuple[Any, ...]]:
    """Id, name, envelope and member of each job that a fire would make."""
    flat = call.args[9:]
    return [flat[i : i + 4] for i in range(0, len(flat), 4)]


@pytest.mark.parametrize("call", ALL, ids=lambda call: str(call.verb)[:30])
def test_every_call_of_a_leader_may_be_repeated(call: Call[Any]) -> None:
    assert call.repeatable


@pytest.mark.parametrize("call", ALL, ids=lambda call: str(call.verb)[:30])
def test_the_keys_of_a_call_are_on_one_node(call: Call[Any]) -> None:
    assert {slot_of(key) for key in call.keys} == {slot_of(KEYS.stream)}


def test_a_leader_says_who_it_is_and_for_how_long() -> None:
    call = lead_ops.lead(OFFICE, KEYS.scheduler_lock, NOW)
    assert (call.keys, call.args) == ((KEYS.scheduler_lock,), ("tambo-me", 5, NOW, 5000))
    assert lead_ops.lead(OFFICE, KEYS.promoter_lock).args == ("tambo-me", 5, "", 5000)
    assert lead_ops.resign(OFFICE, KEYS.scheduler_lock).args == ("tambo-me",)


def test_a_promotion_is_bounded_by_what_the_office_says() -> None:
    assert lead_ops.promote(OFFICE).args == ("tambo-me", 5, 7, 8, 9, 10)


def test_another_leader_is_no_promotion() -> None:
    assert lead_ops.promote(OFFICE).decode(0) is None


def test_a_promotion_tells_what_was_moved_and_what_is_left() -> None:
    decode = lead_ops.promote(OFFICE).decode
    assert decode([[b"a", b""], 1, 5, 40]) == Promotion(["a", ""], 1, 5, 40)
    assert decode([[], 0, 0, -1]) == Promotion([], 0, 0, None)


def test_an_id_that_is_no_text_stops_no_promotion() -> None:
    promotion = lead_ops.promote(OFFICE).decode([[b"\xff"], 0, 0, -1])
    assert promotion is not None
    assert promotion.ids == ["�"]


def test_indexes_are_forgotten_in_one_call() -> None:
    call = lead_ops.forget_indexes(KEYS, ["a", "b"])
    assert call.keys == (KEYS.delayed, KEYS.index("a"), KEYS.index("b"))


def test_due_specs_are_asked_for_by_the_batch() -> None:
    call = lead_ops.due_specs(OFFICE, NOW)
    expected = ("ZRANGEBYSCORE", KEYS.repeat, "-inf", NOW, "WITHSCORES", "LIMIT", 0, 7)
    assert call.parts == expected
    assert call.decode([b"a", b"5", b"b", b"7.9"]) == [Due("a", 5), Due("b", 7)]


@pytest.mark.parametrize(
    ("score", "fire_at_ms"), [(b"-inf", 0), (b"-5", 0), (b"inf", 2**53), (b"1.8e+19", 2**53)]
)
def test_an_odd_score_is_some_time(score: bytes, fire_at_ms: int) -> None:
    assert lead_ops.due_specs(OFFICE, NOW).decode([b"a", score]) == [Due("a", fire_at_ms)]
    assert lead_ops.next_fire(KEYS).decode([b"a", score]) == fire_at_ms


def test_where_nothing_recurs_there_is_no_next_fire() -> None:
    assert lead_ops.next_fire(KEYS).decode([]) is None


def test_a_key_that_is_no_text_can_be_dropped_and_put_off() -> None:
    [due] = lead_ops.due_specs(OFFICE, NOW).decode([b"\xffk", b"5"])
    calls: list[Call[Any]] = [
        lead_ops.drop_spec(OFFICE, due.key, b"", "why", NOW),
        lead_ops.put_off(OFFICE, due, NOW),
    ]
    for call in calls:
        assert b"\xffk" in call.args
    for call in (*calls, lead_ops.spec_body(KEYS, due.key)):
        # A surrogate cannot be sent.
        assert all(key.encode() for key in call.keys)


def test_a_fire_says_what_must_still_be_true() -> None:
    spec = every(limit=3, end_before_ms=99)
    call = lead_ops.fire(OFFICE, spec, "its key", 50, 0, 60, NOW)
    assert call.args == ("tambo-me", "its key", 50, 60, 3, 99, 8, 10, NOW)
    assert call.keys[3:5] == (KEYS.spec("its key"), KEYS.scheduler_lock)


def test_no_limit_and_no_end_are_zeros() -> None:
    assert lead_ops.fire(OFFICE, every(), "k", 50, 0, 60, NOW).args[4:6] == (0, 0)


def test_each_fire_is_a_fresh_job() -> None:
    retry = RetryOverride(3)
    spec = every(retry=retry)
    made = jobs(lead_ops.fire(OFFICE, spec, "k", 50, 3, 60, NOW))
    assert len({id for id, *_ in made}) == 3
    for id, name, body, _ in made:
        job = decode_envelope(body)
        assert (id, name) == (job.id, "tick")
        assert (job.payload, job.created_at_ms, job.attempt) == (b"\x01", NOW, 0)
        assert job.retry == retry


def test_a_fire_that_has_to_wait_is_readable_by_any_promoter() -> None:
    [(_, _, body, member)] = jobs(lead_ops.fire(OFFICE, every(), "k", 50, 1, 60, NOW))
    assert decode_member(member) == ("tick", body)
    assert member[:4] == b"\x04\0\0\0"


def test_a_name_that_nobody_would_take_is_not_fired() -> None:
    spec = RepeatSpec("k", "x" * 257, RepeatPattern.every(1), b"\x01")
    with pytest.raises(InvalidFormat, match="256-byte cap"):
        lead_ops.fire(OFFICE, spec, "k", 50, 1, 60, NOW)


def test_a_fire_tells_how_many_and_whether_it_was_the_last() -> None:
    decode = lead_ops.fire(OFFICE, every(), "k", 50, 1, 60, NOW).decode
    assert [decode([2, 0]), decode([1, 1]), decode([-1, 0])] == [(2, False), (1, True), (-1, False)]


def test_leaders_scripts_bring_the_parts_they_use() -> None:
    for call in ALL:
        if isinstance(call.verb, Script):
            assert call.verb.source.count(f"-- {call.verb.name}: ") == 1
