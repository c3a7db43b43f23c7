"""The calls of producers, and how their replies are decoded. No server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import hiredis
import pytest

from tambomq.chasqui.job import RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops import repeat as repeat_ops
from tambomq.chasqui.ops import reports
from tambomq.chasqui.ops.add import CHUNK, CHUNK_BYTES, FIRST_CHUNK, Draft, Policy, draft
from tambomq.chasqui.producer.add_options import due_at
from tambomq.chasqui.producer.producer import Producer
from tambomq.chasqui.repeat import RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import DIALECTS, decode_envelope, decode_member
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import (
    ForeignLeader,
    InvalidFormat,
    InvalidValue,
    QueueFull,
    RemoteProtocolError,
)
from tambomq.store.call import Call, Plan, Script
from tambomq.store.features import Features

NOW = 1_800_000_000_000
KEYS = Keys("q")
PLAIN, NATIVE = Features(), Features(idmp=True)


def drafted(name: str = "job", policy: Policy = Policy(), **options: Any) -> Draft:  # noqa: B008  (frozen)
    return draft(policy, NOW, name, b"\x01", **options)


def first_calls(plan: Plan[Any]) -> Sequence[Call[Any]]:
    return list(next(plan))


def script(call: Call[Any]) -> Script:
    assert isinstance(call.verb, Script)
    return call.verb


# ── drafts ───────────────────────────────────────────────────────────────────


def test_a_draft_without_an_id_gets_one_that_contains_its_time() -> None:
    one, other = drafted(), drafted()
    assert one.id != other.id
    assert one.id[:10] == other.id[:10] == "01MCC5RM00"
    assert not one.keyed


def test_a_draft_with_an_id_keeps_it_and_counts_once() -> None:
    job = drafted(job_id="mine")
    assert (job.id, job.keyed) == ("mine", True)


def test_the_envelope_of_a_draft_is_a_job_before_its_first_run() -> None:
    envelope = decode_envelope(drafted(job_id="a", retry=RetryOverride(3)).body)
    assert (envelope.id, envelope.payload, envelope.created_at_ms) == ("a", b"\x01", NOW)
    assert (envelope.attempt, envelope.retry) == (0, RetryOverride(3))


@pytest.mark.parametrize("run_at_ms", [NOW, NOW - 1, 0])
def test_a_job_that_is_already_due_is_not_delayed(run_at_ms: int) -> None:
    assert drafted(run_at_ms=run_at_ms).run_at_ms is None


def test_a_delay_beyond_the_longest_is_refused_and_the_longest_is_not() -> None:
    policy = Policy(max_delay_s=60)
    assert drafted(policy=policy, run_at_ms=NOW + 60_999).run_at_ms == NOW + 60_999
    with pytest.raises(InvalidValue, match=r"delay must be within max_delay_secs 60s, not '61s'"):
        drafted(policy=policy, run_at_ms=NOW + 61_000)


def test_no_longest_delay_allows_any() -> None:
    assert drafted(policy=Policy(max_delay_s=0), run_at_ms=2**62).run_at_ms == 2**62


def test_only_a_delayed_name_is_bound_to_its_dialect() -> None:
    assert drafted("n" * 256).name == "n" * 256
    assert drafted("n" * 256, Policy(dialect="engine"), run_at_ms=NOW + 1).run_at_ms
    with pytest.raises(InvalidFormat, match="page dialect"):
        drafted("n" * 256, Policy(dialect="page"), run_at_ms=NOW + 1)
    assert drafted("n" * 256, run_at_ms=NOW + 1).run_at_ms


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_stream_len": 0}, "max_stream_len"),
        ({"max_delay_s": -1}, "max_delay_secs"),
        ({"overflow": "drop"}, "overflow"),
        ({"dedup": "none"}, "dedup"),
        ({"dialect": "other"}, "dialect"),
    ],
)
def test_an_invalid_policy_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidFormat, InvalidValue), match=says):
        Policy(**options)


# ── when a job is due ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("delay_ms", "delay", "due"),
    [
        (0, None, NOW),
        (1500, None, NOW + 1500),
        (1.9, None, NOW + 1),
        (None, timedelta(seconds=2), NOW + 2000),
        (None, timedelta(microseconds=999), NOW),
        (datetime(2027, 1, 15, 8, 0, 1, tzinfo=UTC), None, NOW + 1000),
        (datetime(2027, 1, 15, 9, 0, 1, tzinfo=timezone(timedelta(hours=1))), None, NOW + 1000),
        (datetime(2020, 1, 1, tzinfo=UTC), None, 1_577_836_800_000),
        (2**63, None, NOW + 2**63),
    ],
)
def test_a_delay_is_counted_from_now_and_a_time_is_itself(
    delay_ms: Any, delay: timedelta | None, due: int
) -> None:
    assert due_at(NOW, delay_ms, delay) == due


def test_a_naive_time_is_in_utc_whatever_the_zone_of_the_machine() -> None:
    naive = datetime(2027, 1, 15, 8, 0, 1)  # noqa: DTZ001  (that is what is tested)
    assert due_at(NOW, naive, None) == NOW + 1000


# ── adding ───────────────────────────────────────────────────────────────────


def test_a_job_is_added_by_its_producer_within_the_cap_of_the_policy() -> None:
    job = drafted(job_id="a")
    call = add_ops.add(KEYS, PLAIN, Policy(max_stream_len=9, events_cap=7), "p", job)
    assert call.keys == (KEYS.stream, KEYS.events, KEYS.window("p"))
    assert call.args == ("p", 9, "refuse", 7, 0, NOW, "a", job.body, "job")
    assert call.repeatable


def test_only_a_queue_that_announces_has_events_of_adds() -> None:
    for policy, cap in (
        (Policy(), 0),
        (Policy(announce=True), Policy().events_cap),
        (Policy(announce=True, events_cap=0), 0),
    ):
        assert add_ops.add(KEYS, PLAIN, policy, "p", drafted()).args[4] == cap
        assert add_ops.add_once(KEYS, policy, drafted()).args[4] == cap
        assert add_ops.add_batch(KEYS, PLAIN, policy, "p", [drafted(job_id="a")]).args[5] == cap


def test_servers_with_and_without_idmp_are_sent_scripts_of_one_contract() -> None:
    native, plain = (add_ops.add(KEYS, has, Policy(), "p", drafted()) for has in (NATIVE, PLAIN))
    assert "'IDMP'" in script(native).source
    assert "'IDMP'" not in script(plain).source
    assert native.keys == plain.keys


def test_a_strict_id_is_remembered_under_its_own_key() -> None:
    call = add_ops.add_once(KEYS, Policy(dedup="strict", dedup_ttl_s=5), drafted(job_id="a"))
    assert call.keys == (KEYS.stream, KEYS.events, KEYS.added("a"))
    assert call.args[0] == 5000


@pytest.mark.parametrize("name", ["", "job", "ñ✓", "n" * 256])
def test_far_from_full_a_job_is_added_by_the_command_of_the_engine(name: str) -> None:
    job = drafted(name, job_id="ñ id")
    call = add_ops.UncheckedAdd(KEYS).call("p", job.id, name, job.body)
    head = ("XADD", KEYS.stream, "IDMP", "p", "ñ id", "*", "d", job.body)
    assert call.packed == hiredis.pack_command((*head, "n", name) if name else head)
    assert call.repeatable


def test_quick_adds_of_many_producers_and_names_are_each_packed_as_they_are() -> None:
    quick = add_ops.UncheckedAdd(KEYS)
    for name in ("", *map(str, range(add_ops.MAX_FORMS + 10)), "", "0"):
        for producer in ("p", "50%"):
            packed = quick.call(producer, "id", name, b"%d").packed
            words = ("XADD", KEYS.stream, "IDMP", producer, "id", "*", "d", b"%d")
            assert packed == hiredis.pack_command((*words, "n", name) if name else words)
    assert len(quick._forms) <= add_ops.MAX_FORMS


def test_the_reply_is_the_number_of_jobs_or_that_the_queue_is_full() -> None:
    for call in (
        add_ops.add(KEYS, PLAIN, Policy(max_stream_len=3), "p", drafted()),
        add_ops.add_once(KEYS, Policy(max_stream_len=3), drafted()),
        add_ops.add_batch(KEYS, PLAIN, Policy(max_stream_len=3), "p", [drafted()]),
    ):
        assert call.decode(2) == 2
        with pytest.raises(QueueFull, match="queue 'q' holds 3 jobs and takes no more") as caught:
            call.decode(-1)
        assert (caught.value.queue, caught.value.cap) == ("q", 3)


def test_a_batch_has_a_name_of_its_own_so_that_it_is_added_once() -> None:
    jobs = [drafted(), drafted()]
    call = add_ops.add_batch(KEYS, PLAIN, Policy(), "p", jobs)
    assert call.args[0] == jobs[0].id
    assert call.args[5:] == (1, "job", jobs[0].body, jobs[1].body)
    assert call.repeatable


def test_a_batch_with_several_names_carries_the_name_of_each_job() -> None:
    jobs = [drafted(), drafted("")]
    call = add_ops.add_batch(KEYS, PLAIN, Policy(), "p", jobs)
    assert call.args[5:] == (2, "", jobs[0].body, "job", jobs[1].body, "")


def test_no_script_adds_more_than_a_chunk_of_jobs() -> None:
    jobs = [drafted() for _ in range(FIRST_CHUNK + CHUNK + 1)]
    parts = list(add_ops.batches(jobs))
    assert [len(part) for part in parts] == [FIRST_CHUNK, CHUNK, 1]
    assert [job for part in parts for job in part] == jobs
    assert list(add_ops.batches(jobs[:CHUNK])) == [jobs[:CHUNK]]
    assert list(add_ops.batches([])) == []


def test_no_script_adds_more_than_a_chunk_of_bytes_unless_one_job_has_them() -> None:
    big, half, small = (
        draft(Policy(), NOW, "", b"x" * size)
        for size in (CHUNK_BYTES, CHUNK_BYTES // 2 + 1, CHUNK_BYTES // 2)
    )
    assert [len(part) for part in add_ops.batches([big, half, half, big])] == [1, 1, 1, 1]
    assert [len(part) for part in add_ops.batches([small, small, small])] == [2, 1]


# ── delayed jobs ─────────────────────────────────────────────────────────────


def test_a_delayed_member_has_the_prefix_of_its_dialect() -> None:
    engine = b"\x03\0\0\0job"
    for dialect, prefix in (("page", b"\x03job"), ("engine", engine), ("auto", engine)):
        policy = Policy(dialect=dialect)
        job = drafted(policy=policy, run_at_ms=NOW + 5)
        member = add_ops.schedule(KEYS, policy, "p", job).args[7]
        assert member == prefix + job.body
        assert decode_member(prefix + job.body) == ("job", job.body)


def test_the_script_gets_the_dialect_unless_only_one_can_hold_the_name() -> None:
    for dialect in DIALECTS:
        policy = Policy(dialect=dialect)
        call = add_ops.schedule(KEYS, policy, "p", drafted(policy=policy, run_at_ms=NOW + 5))
        assert call.args[0] == dialect
    call = add_ops.schedule(KEYS, Policy(), "p", drafted("n" * 256, run_at_ms=NOW + 5))
    assert call.args[0] == "engine"


@pytest.mark.parametrize(("delay_ms", "ttl_s"), [(1, 3601), (1999, 3601), (2000, 3602)])
def test_a_scheduled_id_stays_taken_for_an_hour_after_it_was_due(delay_ms: int, ttl_s: int) -> None:
    call = add_ops.schedule(KEYS, Policy(), "p", drafted(job_id="a", run_at_ms=NOW + delay_ms))
    assert call.args[8] == ttl_s
    assert add_ops.schedule(KEYS, Policy(), "p", drafted(run_at_ms=NOW + delay_ms)).args[8] == 0


def test_the_reply_of_schedule_is_a_number_or_the_name_of_a_foreign_leader() -> None:
    call = add_ops.schedule(KEYS, Policy(), "p", drafted(run_at_ms=NOW + 5))
    assert (call.decode(1), call.decode(0), call.decode(2)) == (True, False, add_ops.MIXED)
    with pytest.raises(ForeignLeader, match="queue 'q' is led by 'c-1', another engine") as caught:
        call.decode(b"c-1")
    assert caught.value.holder == "c-1"


def test_results_and_progress_are_decoded() -> None:
    result, progress = add_ops.result(KEYS, "a"), reports.progress(KEYS, "a")
    assert (result.verb, result.keys) == ("GET", (KEYS.result("a"),))
    assert result.decode(None) is None
    assert result.decode(encode_payload({"a": [1]})) == {"a": [1]}
    with pytest.raises(RemoteProtocolError):
        result.decode(b"\xc1")
    assert (progress.decode(b"40"), progress.decode(None), progress.decode(b"x")) == (
        40,
        None,
        None,
    )


# ── plans ────────────────────────────────────────────────────────────────────


def test_a_producer_detects_the_features_of_the_server_once() -> None:
    producer = Producer(KEYS, Policy(), None)
    plan = producer.add(NOW, "job", 1)
    assert [call.verb for call in first_calls(plan)] == ["COMMAND INFO", "COMMAND DOCS"]
    [call] = plan.send([set(), {}])
    assert script(call).name == "add"
    with pytest.raises(StopIteration):
        plan.send([1])
    assert script(first_calls(producer.add(NOW, "job", 1))[0]).name == "add"


def producer_on(has: Features, policy: Policy, length: int) -> Producer:
    """A producer that has just added a job to a stream that now holds *length*."""
    producer = Producer(KEYS, policy, None)
    producer._features = has
    plan = producer.add(NOW, "job", 1)
    next(plan)
    with pytest.raises(StopIteration):
        plan.send([length])
    return producer


@pytest.mark.parametrize(
    ("has", "policy", "length", "later_ms", "verb"),
    [
        (NATIVE, Policy(), 1, 0, "XADD"),
        (NATIVE, Policy(), 1, 150, "XADD"),
        (NATIVE, Policy(), 1, 5000, "add"),
        (NATIVE, Policy(), 1, -5000, "add"),
        (NATIVE, Policy(), 950_000, 0, "add"),
        (NATIVE, Policy(max_stream_len=1000), 1, 0, "add"),
        (NATIVE, Policy(announce=True), 1, 0, "add"),
        (PLAIN, Policy(), 1, 0, "add"),
    ],
)
def test_an_add_skips_the_length_check_only_shortly_after_many_free_slots(
    has: Features, policy: Policy, length: int, later_ms: int, verb: str
) -> None:
    producer = producer_on(has, policy, length)
    [call] = first_calls(producer.add(NOW + later_ms, "job", 1))
    assert verb == (call.verb if isinstance(call.verb, str) else script(call).name)
    assert (verb == "XADD") is (producer.add_unchecked(NOW + later_ms, "job", 1) is not None)


def test_jobs_with_generated_ids_share_a_call_and_others_have_their_own() -> None:
    strict = producer_on(PLAIN, Policy(dedup="strict"), 1)
    jobs = [
        {"name": "a", "data": 1},
        {"name": "b", "data": 1, "job_id": "b"},
        {"name": "c", "data": 1},
        {"name": "d", "data": 1, "delay_ms": 5},
    ]
    calls = first_calls(strict.add_bulk(NOW, jobs))
    assert [script(call).name for call in calls] == ["add_fresh", "add_once", "schedule"]
    assert calls[0].args[8::2] == ("a", "c")


def test_a_batch_of_chosen_ids_uses_the_producers_of_these_ids() -> None:
    jobs = [drafted(job_id="a"), drafted(job_id="b")]
    call = add_ops.add_batch(KEYS, PLAIN, Policy(), "p", jobs)
    assert call.args[1] == "p"
    assert call.args[0] not in ("a", "b")


def test_each_queue_object_adds_an_id_under_its_own_producer_id() -> None:
    one, other = (Producer(KEYS, Policy(), None) for _ in range(2))
    assert one._producer_of("a") == one._producer_of("a")
    assert one._producer_of("a") != other._producer_of("a")
    assert len(one._producer_of("a")) == len("bb7b8a8d-d5b0-4e7e-9900-444cbbdc65d2")


def test_an_empty_batch_makes_no_call() -> None:
    with pytest.raises(StopIteration) as end:
        first_calls(Producer(KEYS, Policy(), None).add_bulk(NOW, []))
    assert end.value.value == []


def test_a_listing_with_a_limit_of_0_reads_nothing() -> None:
    with pytest.raises(StopIteration) as end:
        first_calls(repeat_ops.listing(KEYS, 0))
    assert end.value.value == []
    assert dlq_ops.peek(KEYS, 0).keys == ()
    assert dlq_ops.peek(KEYS, 0).decode(b"") == []


def test_an_upsert_asks_for_the_next_fire() -> None:
    spec = RepeatSpec("k", "job", RepeatPattern.every(60_000), b"\x01")
    call = repeat_ops.upsert(KEYS, spec, NOW)
    assert call.keys[:2] == (KEYS.repeat, KEYS.spec("k"))
    assert call.args[:2] == ("k", NOW + 60_000)


def test_reading_events_waits_on_one_key() -> None:
    call = event_ops.read(KEYS, "5-0", 10, 250)
    want = ("XREAD", "COUNT", 10, "BLOCK", 250, "STREAMS", KEYS.events, "5-0")
    assert call.parts == want
    assert call.decode(None) == []
    assert event_ops.last_id(KEYS).decode([]) == "0-0"


def test_counts_need_one_round_trip() -> None:
    calls = first_calls(admin_ops.counts(KEYS, "g"))
    assert all(call.repeatable for call in calls)
    words = json.dumps([call.parts for call in calls])
    for key in (KEYS.stream, KEYS.dlq, KEYS.delayed, KEYS.repeat, KEYS.paused):
        assert key in words
