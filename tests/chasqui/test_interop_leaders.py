"""Leaders of the engine and of TamboMQ on one queue: one at a time, taking over from each other."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tambomq.chasqui.wire.envelope import decode_envelope, dialect_of
from tests.peers import fixtures
from tests.peers.chasqui import Pair, Scene
from tests.peers.driver import PeerError
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, pair = fixtures.chasqui

TAKEOVER_S = 15.0
"""A leader that was killed is missed for 5 s; then the others have to notice."""
TICK: dict[str, Any] = {"scheduler_tick_ms": 50}
LONG = {"kind": "fixed", "delay_ms": 600_000, "jitter_ms": 0}


def leaders(scene: Scene) -> tuple[str, str]:
    """Return the promoter and the scheduler: "ours", "theirs" or none."""
    holders: Any = scene.db.mget(scene.keys.promoter_lock, scene.keys.scheduler_lock)
    promotes, schedules = (
        "" if holder is None else "ours" if holder.startswith(b"tambo-") else "theirs"
        for holder in holders
    )
    return promotes, schedules


def wait_for_leader(scene: Scene, leader: str) -> None:
    eventually(lambda: leaders(scene) == (leader, leader), within_s=TAKEOVER_S)


def make_due(scene: Scene) -> None:
    """Make all delayed jobs due now, however long it took to come here."""
    members: Any = scene.db.zrange(scene.keys.delayed, 0, -1)
    scene.db.zadd(scene.keys.delayed, dict.fromkeys(members, 1))


# ── a dialect that the leader cannot read ────────────────────────────────────


def test_a_delayed_job_that_a_foreign_leader_could_not_read_is_refused(scene: Scene) -> None:
    scene.get("theirs").work(consumer_id="engine-1")
    wait_for_leader(scene, "theirs")
    page = scene.get("ours", dialect="page")
    before = scene.db.keys(f"*{scene.keys.queue}*")
    for options in ({}, {"job_id": "mine"}):
        with pytest.raises(PeerError) as refused:
            page.add("mail", 1, delay_ms=60_000, **options)
        assert refused.value.code == "ForeignLeader"
        for word in (scene.keys.queue, "engine-1", "page dialect", 'dialect="engine"'):
            assert word in str(refused.value)
    with pytest.raises(PeerError):
        page.do("add_bulk", [{"name": "", "data": n, "delay_ms": 60_000} for n in range(3)])
    after: Any = scene.db.keys(f"*{scene.keys.queue}*")
    assert set(after) == set(before)
    # Jobs without a delay are accepted, and delayed ones once the engine has left.
    page.add("mail", 2)
    eventually(lambda: [run.data for run in scene.ran()] == [2])
    scene.get("theirs").stop()
    page.add("mail", 3, delay_ms=60_000)
    assert scene.db.zcard(scene.keys.delayed) == 1


def test_a_worker_of_the_page_dialect_retries_in_the_one_its_leader_reads(scene: Scene) -> None:
    # Both wait out a machine that is slow: neither takes what the other still runs.
    patient = {"claim_min_idle_ms": 600_000}
    theirs = scene.get("theirs")
    theirs.work(concurrency=1, read_count=1, **patient)
    wait_for_leader(scene, "theirs")
    # While its only handler is held, it leads and runs nothing: the next jobs are for ours.
    theirs.add("held", {"hold": True})
    eventually(lambda: [run.name for run in scene.ran()] == ["held"])
    ours = scene.get("ours", dialect="page")
    ours.work(dialect="page", **patient)
    jobs = [{"name": f"n{n}", "data": {"fail": 1}, "backoff": LONG} for n in range(60)]
    ids = ours.do("add_bulk", jobs)
    eventually(lambda: scene.ran(lambda run: run.worker == "ours"))
    scene.let_go()
    eventually(lambda: scene.db.zcard(scene.keys.delayed) == 60)
    members: Any = scene.db.zrange(scene.keys.delayed, 0, -1)
    for member in members:
        (length,) = struct.unpack_from("<I", member)
        envelope = decode_envelope(member[4 + length :])
        assert member[4 : 4 + length] == f"n{ids.index(envelope.id)}".encode()
        assert envelope.attempt == 1
    # Due at last, each runs again.
    make_due(scene)
    eventually(lambda: len(scene.ran()) == 121 and scene.is_empty())
    assert {run.id for run in scene.ran(lambda run: run.attempts_made == 1)} == set(ids)
    assert not scene.db.exists(scene.keys.dlq)


def test_the_engine_destroys_a_job_that_was_delayed_in_the_page_dialect_before_it_led(
    scene: Scene,
) -> None:
    """Why page members are refused under its lead: of this one, nothing is left to replay."""
    page = scene.get("ours", dialect="page")
    page.add("mail", {"n": 1}, delay_ms=200)
    page.add("", {"n": 2}, delay_ms=200)
    scene.get("theirs").work()
    eventually(lambda: len(page.do("peek_dlq")) == 2)
    letters = page.do("peek_dlq")
    assert {(letter["reason"], letter["payload"]) for letter in letters} == {("decode_failed", b"")}
    assert scene.is_empty()
    # Its promoter goes on.
    scene.get("theirs").add("", 3, delay_ms=50)
    eventually(lambda: [run.data for run in scene.ran()] == [3])


# ── a dialect that all can read ──────────────────────────────────────────────


def late_jobs(count: int, delay_ms: int) -> list[dict[str, Any]]:
    return [{"name": f"n{n}", "data": n, "delay_ms": delay_ms} for n in range(count)]


def ran_all(scene: Scene, count: int) -> bool:
    return len(scene.ran()) == count and scene.is_empty()


def test_jobs_delayed_before_an_engine_joins_survive_the_change_of_leaders(
    scene: Scene,
) -> None:
    ours = scene.get("ours", dialect="auto")
    ours.work(dialect="auto")
    wait_for_leader(scene, "ours")
    ours.do("add_bulk", late_jobs(200, 600_000))
    first: Any = scene.db.zrange(scene.keys.delayed, 0, 0)
    assert dialect_of(first[0]) == "page"
    scene.get("theirs").work()
    eventually(lambda: scene.db.get(scene.keys.signs[-1]) == b"1")
    ours.stop()
    wait_for_leader(scene, "theirs")
    make_due(scene)
    eventually(lambda: ran_all(scene, 200), within_s=20)
    assert {run.worker for run in scene.ran()} == {"theirs"}
    assert not scene.db.exists(scene.keys.dlq)


def test_under_the_lead_of_the_engine_delayed_jobs_are_stored_as_it_reads_them(
    scene: Scene,
) -> None:
    scene.get("theirs").work()
    wait_for_leader(scene, "theirs")
    ours = scene.get("ours", dialect="auto")
    ours.do("add_bulk", late_jobs(50, 300))
    ours.add("mail", 50, delay_ms=300, job_id="mine")
    eventually(lambda: ran_all(scene, 51))
    assert not scene.db.exists(scene.keys.dlq)


def test_a_producer_saves_what_it_delayed_before_the_engine_led(scene: Scene) -> None:
    ours = scene.get("ours", dialect="auto")
    ours.do("add_bulk", late_jobs(200, 60_000))
    scene.get("theirs").work()
    wait_for_leader(scene, "theirs")
    ours.add("mail", 200, delay_ms=60_000)
    make_due(scene)
    eventually(lambda: ran_all(scene, 201))
    assert not scene.db.exists(scene.keys.dlq)


def test_members_of_both_dialects_are_promoted_by_our_leader(scene: Scene) -> None:
    page, engine = scene.get("ours", dialect="page"), scene.get("theirs")
    for n, party in enumerate((page, engine) * 3):
        party.add("x" * n, n, delay_ms=50)
    page.work(dialect="page")
    eventually(lambda: len(scene.ran()) == 6 and scene.is_empty())
    assert sorted((run.name, run.data) for run in scene.ran()) == [("x" * n, n) for n in range(6)]


# ── taking over ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_leadership_passes_from_one_to_the_other(scene: Scene, pair: Pair, how: str) -> None:
    first, second = pair
    first.work(**TICK)
    wait_for_leader(scene, first.name)
    second.work(**TICK)
    ids = [second.add("early", n, delay_ms=100 + n) for n in range(20)]
    eventually(lambda: len(scene.ran()) == 20)
    assert leaders(scene) == (first.name, first.name)
    key = second.do("upsert_repeatable_job", "tick", "t", repeat=_every(400), limit=3)
    ids += [second.add("late", n, delay_ms=500 + n) for n in range(20)]
    if how == "closed":
        first.stop()
    else:
        scene.kill(first.name)
    wait_for_leader(scene, second.name)
    # At most one fire was missed by the spec, which then goes on.
    eventually(lambda: not scene.db.exists(scene.keys.spec(key)), within_s=5)
    eventually(scene.is_empty)
    assert sorted(run.id for run in scene.ran(lambda run: run.name != "tick")) == sorted(ids)
    assert len(scene.ran(lambda run: run.name == "tick")) == 3


def test_only_one_of_four_leads_and_each_job_comes_once(scene: Scene) -> None:
    parties = [scene.get(name) for name in ("ours", "theirs", "ours-2", "theirs-2")]
    for party in parties:
        party.work(**TICK)
    ids = []
    for n, party in enumerate(parties):
        ids += [party.add("later", n, delay_ms=100 + 5 * k) for k in range(100)]
        party.do("upsert_repeatable_job", f"tick{n}", "t", repeat=_every(250 + n), limit=3)
    eventually(lambda: not scene.db.exists(scene.keys.repeat), within_s=10)
    eventually(lambda: len(scene.ran()) >= 412 and scene.is_empty(), within_s=10)
    assert sorted(run.id for run in scene.ran(lambda run: run.name == "later")) == sorted(ids)
    fires = sorted(run.name for run in scene.ran(lambda run: run.data == "t"))
    assert fires == [f"tick{n}" for n in range(4) for _ in range(3)]
    assert len({run.id for run in scene.ran()}) == 412


def _every(interval_ms: int) -> dict[str, Any]:
    return {"kind": "every", "interval_ms": interval_ms}
