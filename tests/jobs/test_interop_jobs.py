"""Typed jobs on a queue that a released engine shares: it runs ours, and we run its."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tambomq.errors import TamboError
from tambomq.jobs import Context, Jobs
from tests.peers import fixtures
from tests.peers.chasqui import Party, Scene
from tests.servers import eventually, eventually_async

pytestmark = pytest.mark.interop

chasquis, scene, _ = fixtures.chasqui

WITHIN_S = 60


@pytest.fixture
def jobs(scene: Scene) -> Iterator[Jobs]:
    """Typed jobs that an engine can read even if it comes later."""
    made = Jobs(scene.keys.queue, redis_url=scene.url, dialect="engine")

    @made.job
    async def welcome(to: str, *, lang: str = "en") -> str:
        return f"{lang}: {to}"

    @made.job(attempts=3)
    async def poll(ctx: Context, fail: int) -> int:
        if ctx.attempt <= fail:
            ctx.retry_in(3600, "not ready")
        return ctx.attempt

    @made.every(0.1)
    def tick() -> None: ...

    yield made
    made.close_sync()


def leading(scene: Scene) -> Party:
    """The engine, with a worker that leads."""
    theirs = scene.get("theirs")
    theirs.work(scheduler_tick_ms=50)
    locks = (scene.keys.promoter_lock, scene.keys.scheduler_lock)
    eventually(lambda: scene.db.exists(*locks) == len(locks), within_s=WITHIN_S)
    return theirs


def work_until(jobs: Jobs, condition: Callable[[], object]) -> None:
    """Run a typed worker until *condition* holds."""

    async def run() -> None:
        worker = jobs.worker(scheduler_tick_ms=20)
        running = asyncio.create_task(worker.run())
        await eventually_async(condition, within_s=WITHIN_S)
        await worker.close()
        await running

    asyncio.run(run())


def test_the_engine_runs_jobs_however_they_were_added(scene: Scene, jobs: Jobs) -> None:
    leading(scene)
    welcome = jobs.definitions["welcome"]
    welcome.add_sync("ada")
    welcome.options(delay_s=0.05, job_id="w-7").add_sync("bob", lang="de")
    jobs.add_many_sync([welcome.call("cyd"), welcome.options(attempts=2, backoff=5).call("dan")])
    for to in ("e", "ev", "eve"):
        welcome.options(job_id="search", debounce_s=0.3).add_sync(to)
    for _ in range(2):
        welcome.options(job_id="warn", throttle_s=60).add_sync("fay")
    eventually(lambda: len(scene.ran()) >= 6 and scene.is_empty(), within_s=WITHIN_S)
    assert {run.name for run in scene.ran()} == {"welcome"}
    ran = sorted((run.data["to"], run.data.get("lang")) for run in scene.ran())
    assert ran == [
        ("ada", None), ("bob", "de"), ("cyd", None), ("dan", None), ("eve", None), ("fay", None)
    ]  # fmt: skip


def test_jobs_of_the_engine_run_typed_and_their_results_are_read_by_it(
    scene: Scene, jobs: Jobs
) -> None:
    theirs = scene.get("theirs")
    id = theirs.add("welcome", {"to": "ada", "lang": "de"})
    late = theirs.add("welcome", {"to": "bob"}, delay_ms=50)
    theirs.add("welcome", {"to": 7})
    work_until(jobs, lambda: scene.is_empty() and scene.db.xlen(scene.keys.dlq) == 1)
    assert theirs.do("get_job_result", id) == "de: ada"
    assert jobs.definitions["welcome"].handle(late).result_sync() == "en: bob"
    [letter] = jobs.blocking_queue.peek_dlq()
    assert "$.to: expected str, got int" in letter.error


def test_a_run_that_we_put_off_is_made_by_the_engine(scene: Scene, jobs: Jobs) -> None:
    job = jobs.definitions["poll"].add_sync(fail=3)
    work_until(jobs, lambda: scene.db.zcard(scene.keys.delayed))
    leading(scene)
    # Its hour is over.
    members: Any = scene.db.zrange(scene.keys.delayed, 0, -1)
    scene.db.zadd(scene.keys.delayed, dict.fromkeys(members, 0))
    eventually(lambda: scene.ran(lambda run: run.id == job.id), within_s=WITHIN_S)
    [run] = scene.ran(lambda run: run.id == job.id)
    assert (run.name, run.data, run.attempts_made) == ("poll", {"fail": 3}, 1)


def test_a_recurring_job_goes_on_under_the_lead_of_the_engine_and_ours(
    scene: Scene, jobs: Jobs
) -> None:
    key = jobs.recurring["tick"].key
    work_until(jobs, lambda: scene.db.hget(scene.keys.spec(key), "fired"))
    theirs = leading(scene)
    eventually(lambda: len(scene.ran(lambda run: run.name == "tick")) >= 3, within_s=WITHIN_S)
    theirs.stop()
    before = int(scene.db.hget(scene.keys.spec(key), "fired") or 0)
    work_until(jobs, lambda: int(scene.db.hget(scene.keys.spec(key), "fired") or 0) > before)


def test_a_job_is_cancelled_unless_the_engine_runs_it(scene: Scene, jobs: Jobs) -> None:
    theirs = leading(scene)
    poll, welcome = jobs.definitions["poll"], jobs.definitions["welcome"]
    delayed = welcome.options(delay_s=3600, job_id="later").add_sync("ada")
    assert delayed.cancel_sync("changed my mind")
    assert scene.is_empty()
    jobs.blocking_queue.add("poll", {"hold": True}, job_id="held")
    eventually(lambda: scene.ran(lambda run: run.id == "held"), within_s=WITHIN_S)
    # It would go on, and report a second end.
    with pytest.raises(TamboError, match="is running in worker"):
        poll.handle("held").cancel_sync()
    scene.let_go()
    eventually(scene.is_empty, within_s=WITHIN_S)
    theirs.stop()
    waiting = welcome.add_sync("bob")
    assert waiting.cancel_sync()
    assert scene.is_empty()
