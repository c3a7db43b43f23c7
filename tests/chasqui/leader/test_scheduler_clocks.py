"""The scheduler with clocks that differ: it fires by the server's, and only if both agree."""

from __future__ import annotations

import logging

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Queue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.leader import clock_ahead_ms
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.schedule.missed_fires import corrected_fire_ms
from tambomq.clock import now_ms
from tests.chasqui.leading import (
    Clock,
    every,
    fired,
    promoter,
    put_spec,
    running,
    scheduler,
)
from tests.servers import Server, eventually_async

NOW = 1_800_000_000_000
MINUTE, HOUR, YEAR = 60_000, 3_600_000, 365 * 86_400_000
RIGHT = now_ms


class Machine:
    """A machine whose clock is ahead by so many ms: that of all schedulers of the test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead = 0
        patch.setattr("tambomq.chasqui.leader.scheduler.now_ms", lambda: RIGHT() + self.ahead)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def due_ms(db: redis.Redis, keys: Keys, key: str = "k") -> int:
    score = db.zscore(keys.repeat, key)
    assert score is not None
    return int(score)


# ── leading ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ahead", [-YEAR, -20_000, 20_000, YEAR])
async def test_a_scheduler_whose_clock_is_wrong_fires_nothing_and_says_so(
    server: Server,
    db: redis.Redis,
    keys: Keys,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    ahead: int,
) -> None:
    put_spec(db, keys, every(), due := RIGHT() - 1, "k")
    machine.ahead = ahead
    async with scheduler(server.url, keys) as leader:
        for _ in range(3):
            await leader.turn()
        assert not leader.is_leader
        assert abs(leader.clock_ahead_s * 1000 - ahead) < 10_000
    assert not db.exists(keys.scheduler_lock)
    assert (db.xlen(keys.stream), due_ms(db, keys)) == (0, due)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    text = warning.getMessage()
    assert keys.queue in text
    assert "differ by more than 5 s" in text
    assert text.count(" (20") == 2, "both times are named"
    assert text.endswith(leader.refusal)


@pytest.mark.parametrize("ahead", [-2000, 2000])
async def test_small_differences_do_not_matter(
    server: Server, db: redis.Redis, keys: Keys, machine: Machine, ahead: int
) -> None:
    put_spec(db, keys, every(), RIGHT() - 1, "k")
    machine.ahead = ahead
    async with scheduler(server.url, keys) as leader:
        await leader.turn()
        assert (leader.is_leader, leader.refusal) == (True, "")
    assert fired(db, keys) == 1


async def test_a_leader_whose_clock_jumps_resigns_and_may_lead_again(
    server: Server, db: redis.Redis, keys: Keys, machine: Machine
) -> None:
    async with (
        scheduler(server.url, keys, holder="tambo-a") as wrong,
        scheduler(server.url, keys, holder="tambo-b") as other,
    ):
        await wrong.turn()
        assert wrong.is_leader
        machine.ahead = YEAR
        await wrong.turn()
        assert not wrong.is_leader
        machine.ahead = 0
        await other.turn()
        assert other.is_leader
        machine.ahead = YEAR
        await wrong.turn()
        assert db.get(keys.scheduler_lock) == b"tambo-b", "it leaves the lock of others alone"
        machine.ahead = 0
        await wrong.turn()
        assert (wrong.is_leader, wrong.refusal) == (False, "")


async def test_jobs_keep_firing_after_a_clock_was_a_year_ahead_for_a_moment(
    server: Server, db: redis.Redis, keys: Keys, machine: Machine
) -> None:
    async with (
        Queue(keys.queue, redis_url=server.url) as queue,
        scheduler(server.url, keys, tick_ms=50) as leader,
        running(leader),
    ):
        job = await queue.add("tick", 1, repeat=RepeatPattern.every(100))
        await eventually_async(lambda: fired(db, keys, job.id) >= 2)
        machine.ahead = YEAR
        await eventually_async(lambda: leader.refusal)
        machine.ahead = 0
        before = fired(db, keys, job.id)
        await eventually_async(lambda: fired(db, keys, job.id) >= before + 2)
        assert due_ms(db, keys, job.id) < RIGHT() + MINUTE


async def test_fires_are_due_by_the_clock_of_the_server(
    server: Server, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_spec(db, keys, every(), NOW + 3000, "k")
    clock = Clock(monkeypatch, NOW, ahead=4000)
    async with scheduler(server.url, keys) as leader:
        await leader.turn()
        assert (fired(db, keys), due_ms(db, keys)) == (0, NOW + 3000)
        clock.now, clock.ahead = NOW + 3000, -4000
        await leader.turn()
        assert (fired(db, keys), due_ms(db, keys)) == (1, NOW + 3000 + MINUTE)


async def test_delayed_jobs_are_promoted_whatever_the_clock_of_the_leader(
    server: Server, db: redis.Redis, blocking: BlockingQueue, keys: Keys, machine: Machine
) -> None:
    """The server's clock decides alone; so its leader's may be wrong."""
    blocking.add("n", 1, delay_ms=HOUR)
    blocking.add("n", 2, delay_ms=1)
    machine.ahead = YEAR
    async with promoter(server.url, keys) as leader, running(leader):
        await eventually_async(lambda: db.xlen(keys.stream) == 1)
    assert db.zcard(keys.delayed) == 1


@pytest.mark.parametrize(
    ("asked", "server", "answered", "ahead"),
    [
        (100, 100, 100, 0),
        (100, 150, 200, 0),
        (100, 7_000, 7_100, 0),
        (7_000, 100, 7_001, 6_900),
        (100, 7_000, 200, -6_800),
    ],
    ids=["same", "between", "a request that took long", "ahead", "behind"],
)
def test_only_a_difference_beyond_the_round_trip_counts(
    asked: int, server: int, answered: int, ahead: int
) -> None:
    assert clock_ahead_ms(asked, server, answered) == ahead


# ── fires that are too far in the future ─────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "fire_at", "back"),
    [
        (RepeatPattern.every(500), NOW + YEAR, NOW + 500),
        (RepeatPattern.every(500), NOW + 500, None),
        (RepeatPattern.every(500), NOW + MINUTE, None),
        (RepeatPattern.every(YEAR), NOW + YEAR, None),
        (RepeatPattern.cron("* * * * *"), NOW + YEAR, NOW + MINUTE),
        (RepeatPattern.cron("* * * * *"), NOW + 2 * MINUTE, None),
        (RepeatPattern.cron("0 0 1 1 *"), NOW + YEAR - 15 * 86_400_000, None),
    ],
)
def test_a_fire_later_than_its_pattern_allows_is_corrected(
    pattern: RepeatPattern, fire_at: int, back: int | None
) -> None:
    assert corrected_fire_ms(RepeatSpec("k", "n", pattern, b""), fire_at, NOW) == back


def test_a_spec_that_starts_later_is_not_corrected() -> None:
    spec = every(500, start_after_ms=NOW + YEAR)
    assert corrected_fire_ms(spec, NOW + YEAR + 500, NOW) is None
    assert corrected_fire_ms(spec, NOW + 2 * YEAR, NOW) == NOW + YEAR + 500


async def test_fires_that_a_wrong_clock_has_written_are_corrected(
    server: Server,
    db: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(monkeypatch, NOW)
    for place in range(10):
        put_spec(db, keys, every(key=f"far-{place}"), NOW + YEAR + place, f"far-{place}")
        put_spec(db, keys, every(YEAR, key=f"rare-{place}"), NOW + YEAR, f"rare-{place}")
    put_spec(db, keys, b"not a spec", NOW + YEAR, "bad")
    async with scheduler(server.url, keys, batch=4) as leader:
        for _ in range(8):
            await leader.turn()
        assert {due_ms(db, keys, f"far-{place}") for place in range(10)} == {NOW + MINUTE}
        assert {due_ms(db, keys, f"rare-{place}") for place in range(10)} == {NOW + YEAR}
        assert due_ms(db, keys, "bad") == NOW + YEAR
        assert db.xlen(keys.stream) == 0, "bringing back fires nothing"
        assert caplog.text.count("too late for its pattern") == 10
        clock.now += MINUTE
        await leader.turn()
        await leader.turn()
        await leader.turn()
    assert {fired(db, keys, f"far-{place}") for place in range(10)} == {1}
