"""The calls of leaders, and how their replies are decoded. No server."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.leader import DueSpec, LeaderConfig, Promotion
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.errors import InvalidFormat
from tambomq.store.call import Call, Script
from tambomq.store.roundtrip import slot_of
from tests.chasqui.leading import every

KEYS = Keys("orders")
CONFIG = LeaderConfig(KEYS, "tambo-me", batch=7, cap=8, dlq_cap=9, events_cap=10)
NOW = 1_800_000_000_000

ALL: list[Call[Any]] = [
    leader_ops.lead(CONFIG, KEYS.promoter_lock),
    leader_ops.resign(CONFIG, KEYS.promoter_lock),
    leader_ops.promote(CONFIG),
    leader_ops.forget_indexes(KEYS, ["a", "b"]),
    leader_ops.due_specs(CONFIG, NOW),
    leader_ops.late_specs(CONFIG, NOW, 3),
    leader_ops.next_fire(KEYS),
    leader_ops.spec_body(KEYS, "k"),
    leader_ops.put_off(CONFIG, DueSpec("k", NOW), NOW),
    leader_ops.fire(CONFIG, every(), "k", NOW, 1, NOW + 1, NOW),
    leader_ops.drop_spec(CONFIG, "k", b"body", "why", NOW),
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


def test_a_leader_sends_its_name_and_the_time_to_live_of_its_lock() -> None:
    call = leader_ops.lead(CONFIG, KEYS.scheduler_lock, NOW)
    assert (call.keys, call.args) == ((KEYS.scheduler_lock,), ("tambo-me", 5, NOW, 5000))
    assert leader_ops.lead(CONFIG, KEYS.promoter_lock).args == ("tambo-me", 5, "", 5000)
    assert leader_ops.resign(CONFIG, KEYS.scheduler_lock).args == ("tambo-me",)


def test_a_promotion_has_the_limits_of_the_leader_config() -> None:
    assert leader_ops.promote(CONFIG).args == ("tambo-me", 5, 7, 8, 9, 10)


def test_a_promotion_is_none_if_another_process_leads() -> None:
    assert leader_ops.promote(CONFIG).decode(0) is None


def test_a_promotion_has_the_moved_ids_and_the_wait_for_the_next() -> None:
    decode = leader_ops.promote(CONFIG).decode
    assert decode([[b"a", b""], 1, 5, 40]) == Promotion(["a", ""], 1, 5, 40)
    assert decode([[], 0, 0, -1]) == Promotion([], 0, 0, None)


def test_an_id_that_is_not_utf8_does_not_stop_a_promotion() -> None:
    promotion = leader_ops.promote(CONFIG).decode([[b"\xff"], 0, 0, -1])
    assert promotion is not None
    assert promotion.ids == ["�"]


def test_indexes_are_forgotten_in_one_call() -> None:
    call = leader_ops.forget_indexes(KEYS, ["a", "b"])
    assert call.keys == (KEYS.delayed, KEYS.index("a"), KEYS.index("b"))


def test_due_specs_are_read_in_batches() -> None:
    call = leader_ops.due_specs(CONFIG, NOW)
    expected = ("ZRANGEBYSCORE", KEYS.repeat, "-inf", NOW, "WITHSCORES", "LIMIT", 0, 7)
    assert call.parts == expected
    assert call.decode([b"a", b"5", b"b", b"7.9"]) == [DueSpec("a", 5), DueSpec("b", 7)]


@pytest.mark.parametrize(
    ("score", "fire_at_ms"), [(b"-inf", 0), (b"-5", 0), (b"inf", 2**53), (b"1.8e+19", 2**53)]
)
def test_an_unusual_score_is_read_as_a_time(score: bytes, fire_at_ms: int) -> None:
    assert leader_ops.due_specs(CONFIG, NOW).decode([b"a", score]) == [DueSpec("a", fire_at_ms)]
    assert leader_ops.next_fire(KEYS).decode([b"a", score]) == fire_at_ms


def test_without_repeatable_jobs_there_is_no_next_fire() -> None:
    assert leader_ops.next_fire(KEYS).decode([]) is None


def test_a_spec_key_that_is_not_utf8_can_be_dropped_and_postponed() -> None:
    [due] = leader_ops.due_specs(CONFIG, NOW).decode([b"\xffk", b"5"])
    calls: list[Call[Any]] = [
        leader_ops.drop_spec(CONFIG, due.key, b"", "why", NOW),
        leader_ops.put_off(CONFIG, due, NOW),
    ]
    for call in calls:
        assert b"\xffk" in call.args
    for call in (*calls, leader_ops.spec_body(KEYS, due.key)):
        # A surrogate cannot be sent.
        assert all(key.encode() for key in call.keys)


def test_a_fire_carries_its_preconditions() -> None:
    spec = every(limit=3, end_before_ms=99)
    call = leader_ops.fire(CONFIG, spec, "its key", 50, 0, 60, NOW)
    assert call.args == ("tambo-me", "its key", 50, 60, 3, 99, 8, 10, NOW)
    assert call.keys[3:5] == (KEYS.spec("its key"), KEYS.scheduler_lock)


def test_no_limit_and_no_end_are_zeros() -> None:
    assert leader_ops.fire(CONFIG, every(), "k", 50, 0, 60, NOW).args[4:6] == (0, 0)


def test_each_fire_is_a_fresh_job() -> None:
    retry = RetryOverride(3)
    spec = every(retry=retry)
    made = jobs(leader_ops.fire(CONFIG, spec, "k", 50, 3, 60, NOW))
    assert len({id for id, *_ in made}) == 3
    for id, name, body, _ in made:
        job = decode_envelope(body)
        assert (id, name) == (job.id, "tick")
        assert (job.payload, job.created_at_ms, job.attempt) == (b"\x01", NOW, 0)
        assert job.retry == retry


def test_a_fire_that_has_to_wait_is_readable_by_any_promoter() -> None:
    [(_, _, body, member)] = jobs(leader_ops.fire(CONFIG, every(), "k", 50, 1, 60, NOW))
    assert decode_member(member) == ("tick", body)
    assert member[:4] == b"\x04\0\0\0"


def test_a_spec_with_an_invalid_job_name_is_not_fired() -> None:
    spec = RepeatSpec("k", "x" * 257, RepeatPattern.every(1), b"\x01")
    with pytest.raises(InvalidFormat, match="256-byte cap"):
        leader_ops.fire(CONFIG, spec, "k", 50, 1, 60, NOW)


def test_a_fire_returns_how_many_and_whether_it_was_the_last() -> None:
    decode = leader_ops.fire(CONFIG, every(), "k", 50, 1, 60, NOW).decode
    assert [decode([2, 0]), decode([1, 1]), decode([-1, 0])] == [(2, False), (1, True), (-1, False)]


def test_leaders_scripts_bring_the_parts_they_use() -> None:
    for call in ALL:
        if isinstance(call.verb, Script):
            assert call.verb.source.count(f"-- {call.verb.name}: ") == 1
