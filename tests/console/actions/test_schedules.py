"""Schedules run now and skip a fire; the scheduler respects what was skipped."""

from __future__ import annotations

import pytest

from tambomq.chasqui import Queue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.errors import ActionRefused
from tambomq.store.aio import AsyncStore
from tests.console.actions.acting import MAIL, ORDERS, actions_on
from tests.servers import Server

HOUR_MS = 3_600_000


async def test_a_schedule_runs_now_and_fires_later_all_the_same(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        spec = await queue.add(
            "report", {"of": "sales"}, repeat=RepeatPattern.every(HOUR_MS), attempts=2
        )
        [before] = await queue.get_repeatable_jobs()
        ran = await actions.run_schedule(MAIL, before.key)
        assert ran.id is not None
        job = await queue.get_job(ran.id)
        [after] = await queue.get_repeatable_jobs()
    assert job is not None
    assert (job.name, job.data) == ("report", {"of": "sales"})
    assert after.next_fire_ms == before.next_fire_ms
    assert spec.id != ran.id


async def test_a_skipped_fire_stays_skipped(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        await queue.add("report", 1, repeat=RepeatPattern.every(HOUR_MS))
        [before] = await queue.get_repeatable_jobs()
        await actions.skip_schedule(MAIL, before.key)
        # The sweep corrects fires that a wrong clock has set too late: this one is meant.
        scheduler = Scheduler(store, LeaderConfig(Keys("mail"), "tambo-test"))
        await scheduler.turn()
        [after] = await queue.get_repeatable_jobs()
    assert after.next_fire_ms == before.next_fire_ms + HOUR_MS


async def test_a_schedule_that_is_gone_is_refused(store: AsyncStore) -> None:
    actions = actions_on(store)
    for act in (actions.run_schedule, actions.skip_schedule):
        with pytest.raises(ActionRefused, match="schedule 'nothing'"):
            await act(MAIL, "nothing")
        with pytest.raises(ActionRefused, match="rsmq has no schedules"):
            await act(ORDERS, "nothing")
