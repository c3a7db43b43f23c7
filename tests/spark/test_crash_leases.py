"""Drivers that are away for longer than their lease: dead ones, and those that come back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from tests.servers import Server
from tests.spark import sampling
from tests.spark.crash_kinds import JOB, KINDS, Case, both, job_args
from tests.spark.dying import Job, holds, run

ROWS = 1000
TAKEN = 300
LEASE = {"leaseSeconds": 2, "maxRowsPerBatch": ROWS, "partitions": 1}
"""One task: to pause it is to pause the whole query."""
WITHIN_S = 300

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(4 * WITHIN_S),
]

WAYS = {
    "taken by others": ("before read", None),
    "same checkpoint": ("before write", ""),
    "no checkpoint": ("before read", "second"),
}
"""Where a query is when its driver goes away, and the folder of the one that takes over."""
TRIED = [(kind, *WAYS[way]) for kind, way in sampling.pairs("leases", [*KINDS], [*WAYS])]


def held(url: str, folder: Path, cases: list[Case], point: str) -> Job:
    """A job whose queries are to be held in their second batch."""
    queries = [case.query_spec(holds(point), **LEASE) for case in cases]
    return Job(JOB, folder, job_args(url, *queries, master="local[4]"))


def are_held(cases: list[Case], point: str) -> bool:
    return all(case.doom(holds(point)).has_come() for case in cases)


@pytest.mark.parametrize("kind", [kind for kind, *way in TRIED if way[-1] is None])
def test_messages_received_by_others_while_the_lease_lapsed_are_reported_and_none_is_doubled(
    server: Server, db: redis.Redis, tmp_path: Path, kind: str
) -> None:
    cases = both(tmp_path, kind)
    sent = {case: case.begun(server.url, range(2 * ROWS)) for case in cases}
    with held(server.url, tmp_path, cases, "before read") as job:
        job.until(lambda: are_held(cases, "before read"), WITHIN_S)
    taken = {}
    for case in cases:
        case.lapse(db)
        taken[case] = case.kind.take(server.url, case.queue, case.lease, TAKEN)
        assert len(taken[case]) == TAKEN
        sent[case] += case.kind.fill(server.url, case.queue, range(2 * ROWS, 3 * ROWS))
    queries = [case.query_spec(**LEASE) for case in cases]
    status, _ = run(JOB, tmp_path, job_args(server.url, *queries), within_s=WITHIN_S)
    assert status != 0
    for case in cases:
        assert "was down for too long" in case.error, case
        assert len(case.rows(db)) == ROWS, case
    queries = [case.query_spec(**LEASE, failOnDataLoss=False) for case in cases]
    status, log = run(JOB, tmp_path, job_args(server.url, *queries), within_s=WITHIN_S)
    assert status == 0, log
    for case in cases:
        assert sorted([*case.rows(db), *taken[case]]) == sorted(sent[case]), case
        assert case.left(db) == 0, case


@pytest.mark.parametrize(
    ("kind", "point", "home"), [each for each in TRIED if each[-1] is not None]
)
def test_a_driver_that_returns_after_a_takeover_changes_nothing(
    server: Server, db: redis.Redis, tmp_path: Path, kind: str, point: str, home: str
) -> None:
    second = tmp_path / "second"
    second.mkdir()
    cases, heirs = both(tmp_path, kind), both(tmp_path / home, kind)
    sent = [sorted(case.begun(server.url, range(3 * ROWS))) for case in cases]
    with held(server.url, tmp_path, cases, point) as zombie:
        zombie.until(lambda: are_held(cases, point), WITHIN_S)
        zombie.signal(signal.SIGSTOP)
        for heir in heirs:
            heir.folder.mkdir(exist_ok=True)
        queries = [heir.query_spec(**LEASE) for heir in heirs]
        status, log = run(JOB, second, job_args(server.url, *queries), within_s=WITHIN_S)
        assert status == 0, log
        assert [found(db, *pair) for pair in zip(cases, heirs, strict=True)] == sent
        for case in cases:
            case.doom(holds(point)).release()
        zombie.signal(signal.SIGCONT)
        assert zombie.wait(WITHIN_S) != 0
    assert all(case.error for case in cases)
    assert [found(db, *pair) for pair in zip(cases, heirs, strict=True)] == sent
    assert [case.left(db) for case in cases] == [0, 0]


def found(db: redis.Redis, case: Case, heir: Case) -> list[bytes]:
    """What two queries have written."""
    if case == heir or case.sink == "queue":
        return case.rows(db)
    return sorted([*case.rows(db), *heir.rows(db)])
