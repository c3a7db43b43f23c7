"""Jobs that TamboMQ adds and the engine runs, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.msgpack import encode_payload
from tests.peers import fixtures
from tests.peers.chasqui import Pair, Scene
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, pair = fixtures.chasqui

PAYLOADS: tuple[Any, ...] = (
    *(None, True, False, 0, 127, 128, 65_535, 65_536, 2**32, 2**64 - 1),
    *(-1, -32, -33, -129, -32_769, -(2**31) - 1, -(2**63)),
    *(0.0, 1.5, -2.25e300, "", "ä€😀", "x" * 31, "x" * 32, "x" * 256, "x" * 65_536),
    *(b"", b"\x00\xff", b"b" * 256, b"b" * 65_536),
    *([], [1, [2, [3, None]]], list(range(16)), list(range(65_536))),
    *({}, {"a": {"b": [b"c", 1.0, True, None]}}, {f"k{n}": n for n in range(16)}),
    *({b"bytes": 1}, {"": "empty", "ключ": "значение"}),
)


def stored(scene: Scene) -> list[tuple[Envelope, dict[bytes, bytes]]]:
    """Return the jobs in the stream."""
    rows: Any = scene.db.xrange(scene.keys.stream)
    return [(decode_envelope(fields[b"d"]), fields) for _, fields in rows]


def all_run(scene: Scene, count: int) -> list[tuple[str, Any]]:
    """Wait until *count* jobs have run and left the queue; return their names and data."""
    eventually(lambda: len(scene.ran()) == count and scene.is_empty(), within_s=10)
    return [(run.name, run.data) for run in scene.ran()]


# ── adding ───────────────────────────────────────────────────────────────────


def test_a_job_runs_with_the_name_data_id_and_time_it_was_added_with(
    scene: Scene, pair: Pair
) -> None:
    ids = [
        pair.producer.add("", {"n": 1}),
        pair.producer.add("welcome", {"n": 2}),
        pair.producer.add("имя", {"n": 3}, job_id="order:3 ü"),
        pair.producer.do("add_unique", "x" * 256, {"n": 4}, job_id="order:4"),
    ]
    added = {envelope.id: envelope.created_at_ms for envelope, _ in stored(scene)}
    pair.consumer.work()
    eventually(lambda: len(scene.ran()) == 4 and scene.is_empty())
    runs = {run.id: run for run in scene.ran()}
    assert [runs[id].name for id in ids] == ["", "welcome", "имя", "x" * 256]
    assert [runs[id].data for id in ids] == [{"n": n} for n in (1, 2, 3, 4)]
    assert {run.attempts_made for run in runs.values()} == {0}
    assert {id: run.created_at_ms for id, run in runs.items()} == added


def test_jobs_added_one_by_one_run_in_their_order(scene: Scene, pair: Pair) -> None:
    ids = [pair.producer.add("n" * (n % 3), n) for n in range(50)]
    pair.consumer.work(concurrency=1)
    assert all_run(scene, 50) == [("n" * (n % 3), n) for n in range(50)]
    assert [run.id for run in scene.ran()] == ids


def test_a_batch_runs_as_it_was_added(scene: Scene, pair: Pair) -> None:
    jobs: list[dict[str, Any]] = [{"name": f"n{n % 3}", "data": n} for n in range(300)]
    mixed: list[dict[str, Any]] = [
        {"name": "keyed", "data": 1, "job_id": "k"},
        {"name": "later", "data": 2, "delay_ms": 50},
        {"name": "", "data": 3, "attempts": 2},
    ]
    ids = pair.producer.do("add_bulk", jobs) + pair.producer.do("add_bulk", mixed)
    pair.consumer.work()
    all_run(scene, 303)
    runs = {run.id: (run.name, run.data) for run in scene.ran()}
    assert [runs[id] for id in ids] == [(job["name"], job["data"]) for job in jobs + mixed]


def test_every_kind_of_value_arrives_as_it_was_sent(scene: Scene, pair: Pair) -> None:
    pair.producer.do("add_bulk", [{"name": str(n), "data": v} for n, v in enumerate(PAYLOADS)])
    pair.consumer.work()
    arrived = {int(name): data for name, data in all_run(scene, len(PAYLOADS))}
    for n, value in enumerate(PAYLOADS):
        assert repr(arrived[n]) == repr(value)


def test_an_id_counts_once_for_each_producer(scene: Scene, pair: Pair) -> None:
    for party in pair:
        assert [party.add("", n, job_id="same") for n in range(3)] == ["same"] * 3
    assert [envelope.payload for envelope, _ in stored(scene)] == [encode_payload(0)] * 2
    pair.consumer.work()
    all_run(scene, 2)
    # … even long after the job has ended.
    for party in pair:
        party.add("", 3, job_id="same")
    pair.producer.add("", "last")
    assert all_run(scene, 3)[-1] == ("", "last")


# ── what a job says about its retries ────────────────────────────────────────

RETRIES: tuple[tuple[dict[str, Any], RetryOverride], ...] = (
    ({"attempts": 2}, RetryOverride(2)),
    ({"backoff": 7}, RetryOverride(None, BackoffSpec("fixed", 7))),
    (
        {"attempts": 4, "backoff": {"kind": "fixed", "delay_ms": 5, "jitter_ms": 0}},
        RetryOverride(4, BackoffSpec.fixed(5, 0)),
    ),
    (
        {
            "backoff": {
                "kind": "exponential",
                "delay_ms": 1,
                "max_delay_ms": 9,
                "multiplier": 3.0,
                "jitter_ms": 0,
            }
        },
        RetryOverride(None, BackoffSpec.exponential(1, multiplier=3.0, max_ms=9, jitter_ms=0)),
    ),
)


def test_the_retry_options_of_a_job_override_those_of_the_worker(scene: Scene, pair: Pair) -> None:
    for n, (options, _) in enumerate(RETRIES):
        pair.producer.add(str(n), {"fail": 2}, **options)
    assert [envelope.retry for envelope, _ in stored(scene)] == [retry for _, retry in RETRIES]
    pair.consumer.work(max_attempts=3)
    eventually(lambda: len(scene.ran()) == 11 and scene.is_empty(), within_s=10)
    runs = sorted((run.name, run.attempts_made) for run in scene.ran())
    assert runs == [("0", 0), ("0", 1), *((name, n) for name in "123" for n in range(3))]
    assert [letter["name"] for letter in pair.consumer.do("peek_dlq")] == ["0"]


def test_an_override_without_content_changes_nothing_and_is_kept(scene: Scene, pair: Pair) -> None:
    data = {"fail": 9}
    if pair.producer.is_ours:
        body = encode_envelope(Envelope("inert", encode_payload(data), 1, 0, RetryOverride()))
        scene.db.xadd(scene.keys.stream, {"d": body})
    else:
        pair.producer.raw_add(encode_payload(data), id="inert", retry={})
    assert stored(scene)[0][0].retry == RetryOverride()
    pair.consumer.work(max_attempts=2)
    letters = eventually(lambda: pair.producer.do("peek_dlq"))
    assert [run.attempts_made for run in scene.ran()] == [0, 1]
    dead = decode_envelope(letters[0]["payload"])
    assert (dead.id, dead.attempt, dead.retry) == ("inert", 1, RetryOverride())


# ── later ────────────────────────────────────────────────────────────────────


def test_a_delayed_job_runs_when_it_is_due(scene: Scene, pair: Pair) -> None:
    pair.producer.add("", 1, delay_ms=150)
    pair.producer.add("named", 2, delay_ms=100.9)
    pair.producer.add("x" * 256, 3, delay_ms=50, job_id="mine", attempts=3)
    pair.consumer.work()
    assert sorted(all_run(scene, 3)) == [("", 1), ("named", 2), ("x" * 256, 3)]
    assert not scene.db.exists(scene.keys.index("mine"))
    assert scene.db.exists(scene.keys.marker("mine"))


def test_a_job_is_scheduled_once_by_both_implementations(scene: Scene, pair: Pair) -> None:
    pair.producer.add("first", 1, delay_ms=60_000, job_id="once")
    for party in pair:
        assert party.add("second", 2, delay_ms=100, job_id="once") == "once"
    assert scene.db.zcard(scene.keys.delayed) == 1
    ttl: Any = scene.db.ttl(scene.keys.marker("once"))
    assert 3655 <= ttl <= 3660


def test_a_scheduled_job_is_cancelled_by_the_other(scene: Scene, pair: Pair) -> None:
    pair.producer.add("mail", 1, delay_ms=60_000, job_id="a")
    pair.producer.add("", 2, delay_ms=60_000)
    assert pair.consumer.do("cancel_delayed", "a") is True
    assert pair.consumer.do("cancel_delayed", "a") is False
    assert pair.producer.do("cancel_delayed", "a") is False
    assert scene.db.zcard(scene.keys.delayed) == 1
    # The id is free again.
    pair.consumer.add("mail", 3, delay_ms=60, job_id="a")
    assert scene.db.zcard(scene.keys.delayed) == 2
    pair.consumer.work()
    eventually(lambda: [run.data for run in scene.ran()] == [3])


# ── results ──────────────────────────────────────────────────────────────────


def test_a_result_is_read_by_the_other(scene: Scene, pair: Pair) -> None:
    values = [1, {"a": [b"x", 2.5]}, "text", False, [], 0]
    jobs = [{"name": "", "data": {"return": value}} for value in values]
    ids = pair.producer.do("add_bulk", [*jobs, {"name": "", "data": {}}])
    pair.consumer.work(store_results=True, result_ttl_ms=1500)
    all_run(scene, len(ids))
    wanted = [*values, None]
    eventually(lambda: pair.producer.do("get_job_result_bulk", ids) == wanted)
    assert [pair.producer.do("get_job_result", id) for id in ids] == wanted
    ttl: Any = scene.db.ttl(scene.keys.result(ids[0]))
    assert 1 <= ttl <= 2


def test_a_result_is_awaited_from_the_other(pair: Pair) -> None:
    pair.consumer.work(store_results=True)
    assert pair.producer.result_of({"return": {"n": 1}}) == {"n": 1}
    assert pair.producer.result_of({"return": 0, "fail": 1}) == 0
