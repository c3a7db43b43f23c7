"""Failed jobs, dead letters and events, exchanged with the engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tests.peers import fixtures
from tests.peers.chasqui import Pair, Party, Scene
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, pair = fixtures.chasqui

AT_ONCE = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}


def letters(scene: Scene) -> list[dict[bytes, bytes]]:
    """The dead letters as they are stored, their fields in order."""
    rows: Any = scene.db.xrange(scene.keys.dlq)
    return [fields for _, fields in rows]


# ── dead letters ─────────────────────────────────────────────────────────────


def test_a_job_that_fails_too_often_is_buried_with_the_fields_of_the_engine(
    scene: Scene, pair: Pair
) -> None:
    pair.producer.add("mail", {"fail": 9}, attempts=3, backoff=AT_ONCE, job_id="named")
    pair.producer.add("", {"fail": 9}, attempts=1, job_id="unnamed")
    pair.producer.add("mail", {"poison": True}, job_id="poison")
    pair.consumer.work()
    eventually(lambda: len(letters(scene)) == 3 and scene.is_empty())
    attempts = Counter(run.id for run in scene.ran())
    assert attempts == {"named": 3, "unnamed": 1, "poison": 1}
    more = (b"detail", b"error_type", b"traceback") if pair.consumer.is_ours else ()
    for fields in letters(scene):
        dead = decode_envelope(fields[b"d"])
        name = () if dead.id == "unnamed" else (b"n",)
        assert tuple(fields) == (b"d", *name, b"source_id", b"reason", *more)
        assert dead.attempt == attempts[dead.id] - 1
        reason = b"unrecoverable" if dead.id == "poison" else b"retries_exhausted"
        assert fields[b"reason"] == reason


ODD: tuple[tuple[dict[Any, Any], str, bytes], ...] = (
    ({"x": b"1"}, "malformed", b""),
    ({"d": b"\xc1", "n": b"name"}, "decode_failed", b"\xc1"),
    ({"d": b"\x92\x01\x02"}, "decode_failed", b"\x92\x01\x02"),
    ({"d": b"\x00" * 600, "n": b"big"}, "oversize_payload", b"\x00" * 600),
)


@pytest.mark.parametrize("engine", ["ours", "theirs"])
def test_invalid_entries_are_dead_lettered_alike(scene: Scene, engine: str) -> None:
    sources: list[Any] = [scene.db.xadd(scene.keys.stream, fields) for fields, _, _ in ODD]
    scene.get(engine).work(max_payload_bytes=500)
    eventually(lambda: len(letters(scene)) == len(ODD))
    found = {fields[b"source_id"]: fields for fields in letters(scene)}
    for source, (_, reason, payload) in zip(sources, ODD, strict=True):
        fields = found[source]
        assert (fields[b"d"], fields[b"reason"].decode()) == (payload, reason)
        assert fields.get(b"n") == (b"big" if reason == "oversize_payload" else None)
        assert (b"detail" in fields) == (reason == "malformed")
    assert {fields.get(b"detail") for fields in found.values()} == {
        None,
        b"missing or non-bytes payload field",
    }


@pytest.mark.parametrize("engine", ["ours", "theirs"])
def test_a_job_whose_workers_died_too_often_is_buried_unrun(scene: Scene, engine: str) -> None:
    body = encode_envelope(Envelope("killer", b"\x01", 1))
    scene.db.xgroup_create(scene.keys.stream, "default", "0", mkstream=True)
    entry = scene.db.xadd(scene.keys.stream, {"d": body, "n": "job"})
    scene.db.xreadgroup("default", "dead", {scene.keys.stream: ">"})
    scene.db.xclaim(scene.keys.stream, "default", "dead", 0, [entry], idle=60_000, retrycount=4)
    scene.get(engine).work(max_attempts=3)
    eventually(lambda: letters(scene))
    fields = letters(scene)[0]
    assert [fields[name] for name in (b"d", b"n", b"reason")] == [
        body,
        b"job",
        b"retries_exhausted",
    ]
    assert scene.ran() == []


def test_both_implementations_show_the_same_dead_letters(scene: Scene, pair: Pair) -> None:
    for n in range(4):
        pair.producer.add(f"n{n}", {"poison": True})
    scene.db.xadd(scene.keys.stream, {"x": b"1"})
    pair.consumer.work()
    eventually(lambda: len(letters(scene)) == 5)
    theirs, ours = scene.get("theirs").do("peek_dlq"), scene.get("ours").do("peek_dlq")
    assert ours == theirs
    assert scene.get("ours").do("peek_dlq", 2) == scene.get("theirs").do("peek_dlq", 2) == ours[:2]


def test_dead_letters_of_the_other_implementation_are_replayed(scene: Scene, pair: Pair) -> None:
    for n in range(3):
        pair.producer.add(f"n{n}", {"fail": n + 1}, attempts=n + 1, backoff=AT_ONCE)
    scene.db.xadd(scene.keys.stream, {"d": b"\xc1"})
    pair.consumer.work()
    eventually(lambda: len(letters(scene)) == 4 and scene.is_empty())
    pair.consumer.stop()
    runs = len(scene.ran())
    assert pair.producer.do("replay_dlq") == 3
    rows: Any = scene.db.xrange(scene.keys.stream)
    for _, fields in rows:
        envelope = decode_envelope(fields[b"d"])
        assert envelope.attempt == 0
        assert envelope.retry is not None
        assert tuple(fields) == (b"d", b"n")
    assert [fields[b"reason"] for fields in letters(scene)] == [b"decode_failed"]
    pair.producer.work()
    eventually(lambda: len(letters(scene)) == 4 and scene.is_empty())
    assert len(scene.ran()) == 2 * runs


# ── retries ──────────────────────────────────────────────────────────────────


def test_a_job_that_failed_at_one_is_run_again_by_the_other(scene: Scene, pair: Pair) -> None:
    backoff = {"kind": "fixed", "delay_ms": 1500, "jitter_ms": 0}
    ids = [pair.producer.add(name, {"fail": 1}, backoff=backoff) for name in ("", "mail")]
    pair.consumer.work(delayed_enabled=False)
    eventually(lambda: scene.db.zcard(scene.keys.delayed) == 2)
    pair.consumer.stop()
    pair.producer.work()
    eventually(lambda: len(scene.ran()) == 4 and scene.is_empty())
    again = scene.ran(lambda run: run.attempts_made == 1)
    assert {run.worker for run in again} == {pair.producer.name}
    assert sorted((run.id, run.name) for run in again) == sorted(
        zip(ids, ("", "mail"), strict=True)
    )


# ── events ───────────────────────────────────────────────────────────────────


def heard(listener: Party, id: str, count: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Wait for *count* events of a job, and leave out of them what differs from run to run.

    Waiting and delayed are told by us for every add, by the engine for promotions only.
    """

    def emitted_events() -> list[tuple[str, str, dict[str, Any]]]:
        return [
            (
                event,
                name,
                {field: fields[field] for field in ("attempt", "reason") if field in fields},
            )
            for event, job_id, name, fields in listener.heard()
            if job_id == id and event not in ("waiting", "delayed")
        ]

    eventually(lambda: len(emitted_events()) == count)
    return emitted_events()


@pytest.mark.parametrize("worker", ["ours", "theirs"])
def test_events_are_the_same_for_every_pair_of_emitter_and_subscriber(
    scene: Scene, worker: str
) -> None:
    listeners = [scene.get("ours"), scene.get("theirs")]
    for listener in listeners:
        listener.listen(last_event_id="0", block_ms=50)
    producer = scene.get("ours")
    good = producer.add("good", {"fail": 1}, backoff=AT_ONCE)
    bad = producer.add("", {"fail": 9}, attempts=1)
    dead = producer.add("dead", {"poison": True})
    scene.get(worker).work()
    for listener in listeners:
        assert heard(listener, good, 5) == [
            ("active", "good", {"attempt": 1}),
            ("failed", "good", {"attempt": 1, "reason": "fails as told"}),
            ("retry-scheduled", "good", {"attempt": 2}),
            ("active", "good", {"attempt": 2}),
            ("completed", "good", {"attempt": 2}),
        ]
        assert heard(listener, bad, 3)[1:] == [
            ("failed", "", {"attempt": 1, "reason": "fails as told"}),
            ("dlq", "", {"attempt": 1, "reason": "retries_exhausted"}),
        ]
        assert heard(listener, dead, 3)[1:] == [
            ("failed", "dead", {"attempt": 1, "reason": "poisoned as told"}),
            ("dlq", "dead", {"attempt": 1, "reason": "unrecoverable"}),
        ]
    ours, theirs = (listener.heard() for listener in listeners)
    shared = min(len(ours), len(theirs))
    assert ours[:shared] == theirs[:shared]


FIELDS = {
    b"active": (b"attempt",),
    b"completed": (b"attempt", b"duration_us"),
    b"failed": (b"attempt", b"reason", b"duration_us"),
    b"retry-scheduled": (b"attempt", b"backoff_ms"),
    b"dlq": (b"attempt", b"reason"),
}


@pytest.mark.parametrize("worker", ["ours", "theirs"])
def test_events_have_the_same_fields_in_the_same_order(scene: Scene, worker: str) -> None:
    party = scene.get(worker)
    party.add("mail", {"fail": 1}, backoff=AT_ONCE)
    party.add("mail", {"poison": True})
    party.work()
    eventually(lambda: len(scene.ran()) == 3 and scene.is_empty())

    def emitted_events() -> dict[bytes, tuple[bytes, ...]]:
        rows: Any = scene.db.xrange(scene.keys.events)
        return {fields[b"e"]: tuple(fields) for _, fields in rows}

    eventually(lambda: emitted_events().keys() >= FIELDS.keys())
    for event, more in FIELDS.items():
        assert emitted_events()[event] == (b"e", b"id", b"ts", b"n", *more)


def test_events_that_only_tambomq_emits_reach_all_and_disturb_no_subscriber(scene: Scene) -> None:
    listeners = [scene.get("ours"), scene.get("theirs")]
    for listener in listeners:
        listener.listen(last_event_id="0", block_ms=50)
    producer = scene.get("ours")
    producer.add("late", 1, job_id="gone", delay_ms=3_600_000)
    assert producer.do("cancel_delayed", "gone") is True
    scene.get("theirs").work()
    later = producer.add("mail", {"n": 1})
    for listener in listeners:
        assert [event for event, *_ in heard(listener, later, 2)] == ["active", "completed"]
        assert heard(listener, "gone", 1) == [("cancelled", "late", {})]
