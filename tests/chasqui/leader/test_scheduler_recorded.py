"""Jobs of repeatable specs are journalled, all or none, if their leader has a journal."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, MissedFiresPolicy, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.leader import FIRES
from tambomq.errors import JournalFull
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tests.chasqui.conftest import Work
from tests.chasqui.leading import (
    Clock,
    emitted_events,
    entries,
    every,
    fired,
    members,
    on_each_server,
    put_spec,
    running,
    scheduler,
    waiting,
)
from tests.journal.looking import commit_all, records, state
from tests.servers import Server, eventually_async

NOW = 1_800_000_000_000
MINUTE = 60_000
RECORDED = JournalPolicy("chasqui", ("*",))
ALL = MissedFiresPolicy.fire_all(1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, NOW)


async def turn(server: Server, keys: Keys, **config: Any) -> float:
    async with scheduler(server.url, keys, **{"journal": RECORDED, **config}) as leader:
        return await leader.turn()


def recorded(server: Server, keys: Keys) -> list[tuple[str, str]]:
    """Id and name of each job that the journal says was sent, in order."""
    found = records(server.url, "chasqui", keys.queue)
    assert {each.event for each in found} <= {"sent"}
    return [(each.id, each.name) for each in found]


@on_each_server
async def test_each_fire_is_recorded_with_its_data(each_server: Server, keys: Keys) -> None:
    db = redis.Redis.from_url(each_server.url)
    with BlockingQueue(keys.queue, redis_url=each_server.url) as queue:
        job = queue.add("tick", {"a": 1}, repeat=RepeatPattern.every(50))
    async with (
        scheduler(each_server.url, keys, journal=RECORDED) as leader,
        running(leader),
    ):
        await eventually_async(lambda: fired(db, keys, job.id) >= 3)
    assert recorded(each_server, keys) == waiting(db, keys)
    assert {each.body for each in records(each_server.url, "chasqui", keys.queue)} == {
        b"\x81\xa1a\x01"
    }
    db.close()


async def test_many_fires_that_were_missed_are_recorded_once_each(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(missed_fires=ALL), NOW - 599 * MINUTE, "k")
    await turn(server, keys)
    await turn(server, keys)
    assert len(waiting(db, keys)) == 600 > 2 * FIRES
    assert recorded(server, keys) == waiting(db, keys)


async def test_fires_that_are_delayed_by_a_full_stream_are_recorded_too(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(missed_fires=ALL), NOW - 4 * MINUTE, "k")
    await turn(server, keys, cap=2)
    assert (len(waiting(db, keys)), len(members(db, keys))) == (2, 3)
    assert len(recorded(server, keys)) == 5
    assert recorded(server, keys)[:2] == waiting(db, keys)


async def test_nothing_is_journalled_by_default(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    put_spec(db, keys, every(), NOW, "k")
    await turn(server, keys, journal=None)
    assert len(waiting(db, keys)) == 1
    assert state(server.url, "chasqui", keys.queue) is None


async def test_fires_wait_while_the_journal_is_full(
    server: Server, db: redis.Redis, keys: Keys, clock: Clock
) -> None:
    small = JournalPolicy("chasqui", ("*",), JournalBounds(max_entries=3))
    put_spec(db, keys, every(missed_fires=ALL), NOW - 2 * MINUTE, "k")
    await turn(server, keys, journal=small)
    clock.now += MINUTE
    async with scheduler(server.url, keys, journal=small) as leader:
        with pytest.raises(JournalFull):
            await leader.turn()
    assert (len(waiting(db, keys)), fired(db, keys)) == (3, 3)
    assert db.zscore(keys.repeat, "k") == NOW + MINUTE
    assert len(emitted_events(db, keys)) == 3
    commit_all(server.url, "chasqui", keys.queue)
    clock.now += MINUTE
    for _ in range(2):
        await turn(server, keys, journal=small)
    assert (len(waiting(db, keys)), fired(db, keys)) == (5, 5)
    assert recorded(server, keys)[1:] == waiting(db, keys)[3:]


async def test_a_scheduler_continues_once_its_full_journal_has_space(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    put_spec(db, keys, every(20), 1000, "k")

    def refused() -> int:
        found = state(server.url, "chasqui", keys.queue)
        return found.refused if found else 0

    small = JournalPolicy("chasqui", ("*",), JournalBounds(max_entries=2))
    async with scheduler(server.url, keys, journal=small) as leader, running(leader):
        await eventually_async(lambda: refused() > 0)
        made = len(waiting(db, keys))
        assert leader.is_leader
        commit_all(server.url, "chasqui", keys.queue)
        await eventually_async(lambda: len(waiting(db, keys)) > made)


async def test_a_worker_records_the_repeatable_jobs_that_it_fires(
    work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    ran: list[str] = []

    async def handler(job: Any) -> None:
        ran.append(job.id)

    with BlockingQueue(keys.queue, redis_url=server.url) as queue:
        queue.upsert_repeatable_job("tick", 1, repeat=RepeatPattern.every(30), limit=4)
    async with work(handler, journal=True):
        await eventually_async(lambda: len(ran) == 4)
    assert sorted(id for id, _ in recorded(server, keys)) == sorted(ran)
    assert entries(db, keys.stream) == []
