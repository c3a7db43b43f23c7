"""Processes, supervisors and servers that are killed under load: nothing is lost or run twice.

"Twice" means by two live owners: what a killed process had begun is run again by another.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import redis

from tambomq.chasqui import Queue
from tambomq.errors import TamboError
from tambomq.rsmq import AsyncRsmq
from tests.chasqui.faults import QUEUE, EventLog, dead, delayed, waiting
from tests.servers import Server, eventually_async
from tests.work.supervising import SLEEPER, Shop, ended
from tests.work.supervising import shop as open_shop

pytestmark = pytest.mark.slow


class JobLoad:
    """Adds jobs until the block ends, and knows which were confirmed."""

    def __init__(self, shop: Shop, url: str) -> None:
        self._shop, self._url = shop, url
        self.queue = Queue(QUEUE, redis_url=url)
        self.confirmed: set[str] = set()
        self.enough = False

    async def produce(self) -> None:
        for number in itertools.takewhile(lambda _: not self.enough, itertools.count()):
            with suppress(TamboError):
                job = await self.queue.add("plain", 0.02, job_id=f"{number}")
                self.confirmed.add(job.id)
            await asyncio.sleep(0.004)

    async def run_more(self, jobs: int) -> None:
        """Wait until so many more have been run."""
        goal = self._shop.notes.count("ended") + jobs
        await eventually_async(lambda: self._shop.notes.count("ended") >= goal, within_s=20)

    async def account(self, killed: set[int]) -> None:
        """Wait until all is done, and check that each job was, once."""
        with redis.Redis.from_url(self._url) as db:
            await eventually_async(
                lambda: self.confirmed <= set(EventLog(db).of("completed")), within_s=20
            )
            assert (waiting(db).total(), delayed(db).total(), dead(db).total()) == (0, 0, 0)
            completed = EventLog(db).of("completed")
            assert {id: completed[id] for id in self.confirmed if completed[id] != 1} == {}
        assert self._shop.notes.overlaps(killed) == []


@asynccontextmanager
async def loaded(shop: Shop, url: str) -> AsyncIterator[JobLoad]:
    load = JobLoad(shop, url)
    producing = asyncio.create_task(load.produce())
    try:
        yield load
    finally:
        load.enough = True
        await producing
        await load.queue.close()


async def test_a_killed_process_loses_nothing_and_is_replaced(shop: Shop, server: Server) -> None:
    shop.write()
    work = shop.work("app", "--processes", "2", "--quiet").ready()
    killed = work.pids()[0]
    async with loaded(shop, server.url) as load:
        await load.run_more(50)
        os.kill(killed, signal.SIGKILL)
        await eventually_async(
            lambda: work.metric("process_restarts_total", process=1, cause="died") == 1
        )
        await load.run_more(50)
    await load.account({killed})
    assert killed not in work.ready().pids()
    assert f"process 1 (pid {killed}) was killed by SIGKILL" in work.err
    assert work.stop() == 0


async def test_processes_of_a_killed_supervisor_drain_and_end(shop: Shop, server: Server) -> None:
    shop.write()
    work = shop.work("app", "--processes", "2", "--quiet", "--drain-s", "5").ready()
    pids = work.pids()
    async with loaded(shop, server.url) as load:
        await load.run_more(50)
        work.signal(signal.SIGKILL)
        for pid in pids:
            await asyncio.to_thread(ended, pid)
        assert shop.notes.jobs("begun") == shop.notes.jobs("ended")  # nothing was torn
        successor = shop.work("app", "--quiet").ready()
        await load.run_more(50)
    await load.account(set())
    assert "the supervisor is gone" in work.err
    assert successor.stop() == 0


async def test_a_killed_server_loses_nothing(tmp_path: Path, private_server: Server) -> None:
    with open_shop(tmp_path, private_server.url) as shop:
        shop.write()
        work = shop.work("app", "--processes", "2", "--quiet").ready()
        pids = work.pids()
        async with loaded(shop, private_server.url) as load:
            await load.run_more(50)
            private_server.kill()
            private_server.restart()
            await load.run_more(50)
        await load.account(set())
        # The processes have waited for the server: none had to be replaced.
        assert work.ready().pids() == pids
        assert work.stop() == 0


async def test_two_supervisors_share_a_queue(shop: Shop, server: Server) -> None:
    shop.write()
    works = [shop.work("app", "--quiet") for _ in range(2)]
    for work in works:
        work.ready()
    async with loaded(shop, server.url) as load:
        await eventually_async(lambda: len(shop.notes.pids()) == 2, within_s=20)
        await load.run_more(20)
        assert works[0].stop() == 0
        await load.run_more(20)
    await load.account(set())
    assert works[1].stop() == 0
    assert shop.notes.jobs("ended").total() == len(load.confirmed)


async def test_a_reload_under_load_loses_nothing(shop: Shop, server: Server) -> None:
    shop.write()
    work = shop.work("app", "--processes", "2", "--reload", "--quiet").ready()
    before = set(work.pids())
    async with loaded(shop, server.url) as load:
        await load.run_more(50)
        shop.write(SLEEPER.replace('note("ended"', 'note("changed", job); note("ended"'))
        await eventually_async(lambda: len(shop.notes.pids("changed")) == 2, within_s=20)
        await load.run_more(50)
    await load.account(set())
    assert before.isdisjoint(work.ready().pids())
    assert "app.py changed" in work.err
    assert work.metric("process_restarts_total", cause="reload") == 2
    assert shop.notes.jobs("ended").total() == len(load.confirmed)
    assert work.stop() == 0


RSMQ = """
async def handle(message: Message) -> None:
    note("begun", message)
    await asyncio.sleep(0.02)
    note("ended", message)

worker = RsmqWorker("letters", handle, url=URL, concurrency=4, vt=4)
"""


async def test_a_killed_process_of_an_rsmq_worker_loses_nothing(shop: Shop, server: Server) -> None:
    shop.write(RSMQ)
    async with AsyncRsmq(server.url) as rsmq:
        await rsmq.create_queue("letters", vt=4)
        work, killed = shop.work("app", "--processes", "2").ready(), set[int]()
        sent: set[str] = set()
        for number in range(3):
            for _ in range(40):
                sent.add(await rsmq.send_message("letters", b"x"))
            await has_run(shop, 20 + 40 * number)
            killed.add(victim := work.pids()[0])
            os.kill(victim, signal.SIGKILL)
            ended(victim)
        await eventually_async(lambda: sent <= set(shop.notes.jobs("ended")), within_s=30)
        await eventually_async(lambda: is_drained(rsmq), within_s=30)
    # What a killed process had begun was run again by another; nothing else ran twice.
    assert shop.notes.overlaps(killed) == []
    assert work.metric("process_restarts_total", cause="died") == 3
    assert work.ready().stop() == 0


async def has_run(shop: Shop, messages: int) -> None:
    await eventually_async(lambda: shop.notes.count("ended") >= messages, within_s=20)


async def is_drained(rsmq: AsyncRsmq) -> bool:
    return (await rsmq.get_queue_attributes("letters")).msgs == 0
