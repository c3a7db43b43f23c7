"""Workers of the engine and of TamboMQ on one queue, under load, while some are killed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tambomq.chasqui.wire.envelope import decode_envelope
from tests.peers import fixtures
from tests.peers.chasqui import Scene
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, _ = fixtures.chasqui

WORKERS = ("ours", "theirs", "ours-2", "theirs-2")
JOBS = 4_000
KILLED = {1_500: "ours-2", 2_500: "theirs-2"}
"""The worker to kill after each of these numbers of added jobs."""
AT_ONCE = {"kind": "fixed", "delay_ms": 20, "jitter_ms": 20}


def job(n: int) -> dict[str, Any]:
    """One of many: most run at once, one in ten fails first, some later, some are poison."""
    data: dict[str, Any] = {"n": n, "for_s": 0.004}
    made: dict[str, Any] = {"name": f"n{n % 7}" if n % 7 else "", "data": data}
    if n % 10 == 3:
        data["fail"] = 1 + n % 3
        made["backoff"] = AT_ONCE
    if n % 40 == 9:
        data["poison"] = True
    if n % 100 == 51:
        data["fail"] = 99
        made |= {"attempts": 2, "backoff": AT_ONCE}
    if n % 8 == 0:
        made["delay_ms"] = 100 + n % 3_000
    return made


def outcomes(scene: Scene) -> tuple[set[str], Counter[str]]:
    """Ids of the jobs that were completed, and how often each is a dead letter."""
    events: Any = scene.db.xrange(scene.keys.events)
    letters: Any = scene.db.xrange(scene.keys.dlq)
    completed = {fields[b"id"].decode() for _, fields in events if fields[b"e"] == b"completed"}
    return completed, Counter(decode_envelope(fields[b"d"]).id for _, fields in letters)


def held_by(scene: Scene, worker: str) -> int:
    """How many jobs are in a worker's hands."""
    consumers: Any = scene.db.xinfo_consumers(scene.keys.stream, "default")
    return sum(each["pending"] for each in consumers if each["name"] == worker.encode())


def kill(scene: Scene, worker: str) -> tuple[list[str], int]:
    """Kill a worker in the middle of its work; returns ids of that work, and how much it held."""
    long = [{"name": "long", "data": {"for_s": 0.3}} for _ in range(300)]
    ids = scene.get("ours").do("add_bulk", long)
    eventually(lambda: held_by(scene, worker) >= 10)
    scene.kill(worker)
    return ids, held_by(scene, worker)


def test_a_mixed_fleet_loses_no_job_though_one_of_each_is_killed(scene: Scene) -> None:
    for name in WORKERS:
        scene.get(name).work(consumer_id=name, concurrency=20, claim_min_idle_ms=4_000)
    producers = [scene.get("ours"), scene.get("theirs")]
    ids: list[str] = []
    also: list[str] = []
    lost = 0
    for first in range(0, JOBS, 250):
        batch = [job(n) for n in range(first, first + 250)]
        ids += producers[first // 250 % 2].do("add_bulk", batch)
        if first in KILLED:
            more, held = kill(scene, KILLED[first])
            also, lost = also + more, lost + held
    eventually(scene.is_empty, within_s=40)

    completed, dead = outcomes(scene)
    poisoned = {id for n, id in enumerate(ids) if dies(n)}
    runs = scene.ran()
    # The engine acknowledges a job and writes its event in two steps: killed between them, it has
    # run the job and left no event.
    by_killed_engine = {run.id for run in runs if run.worker == KILLED[2_500]}
    assert completed <= {*ids, *also} - poisoned
    assert {*ids, *also} - poisoned - completed <= by_killed_engine
    assert dead.keys() == poisoned
    assert set(dead.values()) == {1}
    pending: Any = scene.db.xpending(scene.keys.stream, "default")
    assert pending["pending"] == 0
    assert {run.worker for run in runs} == set(WORKERS)
    # Jobs of killed workers ran again; no others did.
    assert lost >= 10
    again = Counter((run.id, run.attempts_made) for run in runs)
    assert sum(times - 1 for times in again.values()) <= lost


def dies(n: int) -> bool:
    """Whether that job never succeeds."""
    data = job(n)["data"]
    return bool(data.get("poison")) or data.get("fail", 0) > 25
