"""Jobs of processes that are killed run elsewhere at once; those of live owners never do.

Leases last an hour here: only what is released runs again within a test.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tambomq.chasqui import BlockingQueue
from tests.servers import Server, eventually
from tests.work.supervising import WITHIN_S, Shop, ended

# Each starts `tambo work` with its processes, and kills some.
pytestmark = pytest.mark.slow

HOURS = """
async def handle(job: Job) -> None:
    note("begun", job)
    while not os.path.exists(job.data):
        await asyncio.sleep(0.02)
    note("ended", job)

worker = Worker("q", handle, redis_url=URL, concurrency=2, claim_min_idle_ms=3_600_000)
"""
"""A module whose jobs run until a file exists."""


@pytest.fixture
def queue(server: Server) -> Iterator[BlockingQueue]:
    opened = BlockingQueue("q", redis_url=server.url)
    yield opened
    opened.close()


def add(queue: BlockingQueue, shop: Shop, jobs: int) -> None:
    go = str(shop.folder / "go")
    queue.add_bulk([{"name": "wait", "data": go} for _ in range(jobs)])


def test_jobs_of_a_killed_process_run_in_another_and_those_of_live_ones_stay(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write(HOURS)
    work = shop.work("app", "--processes", "2").ready()
    add(queue, shop, 4)
    eventually(lambda: shop.notes.count("begun") == 4, within_s=WITHIN_S)
    killed = work.pids()[0]
    had = {job for what, pid, job in shop.notes if what == "begun" and pid == killed}
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: shop.notes.count("begun") == 4 + len(had), within_s=WITHIN_S)
    work.says(f"gave back {len(had)} jobs? of queue 'q' that a process had when it ended", "err")
    (shop.folder / "go").touch()
    eventually(lambda: shop.notes.count("ended") == 4, within_s=WITHIN_S)
    begun = shop.notes.jobs("begun")
    assert {job for job, count in begun.items() if count == 2} == had
    assert had
    assert set(shop.notes.jobs("ended").values()) == {1}
    assert shop.notes.overlaps({killed}) == []
    # Settled a moment after it has ended.
    eventually(lambda: queue.get_job_counts().active == 0, within_s=WITHIN_S)
    assert work.ready().stop() == 0


def test_a_second_supervisor_takes_over_and_keeps_its_own_jobs(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write(HOURS)
    works = [shop.work("app").ready() for _ in range(2)]
    add(queue, shop, 4)
    eventually(lambda: shop.notes.count("begun") == 4, within_s=WITHIN_S)
    # Its successor is killed too: what runs again does so with the other one, or not at all.
    (killed,) = works[0].pids()
    os.kill(killed, signal.SIGKILL)
    works[0].says("gave back 2 jobs", "err")
    (shop.folder / "go").touch()
    eventually(lambda: shop.notes.count("ended") == 4, within_s=WITHIN_S)
    assert shop.notes.overlaps({killed}) == []
    assert set(shop.notes.jobs("ended").values()) == {1}
    for work in works:
        assert work.ready().stop() == 0


def test_a_job_that_kills_its_workers_is_hurried_once_and_stops_after_its_budget(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            os.kill(os.getpid(), signal.SIGKILL)

        worker = Worker("q", handle, redis_url=URL, max_attempts=2, claim_min_idle_ms=1500)
    """)
    work = shop.work("app")
    job = queue.add("poison", None)
    # As without a release: one death is forgiven, each further one is an attempt.
    eventually(lambda: queue.get_job_counts().dead == 1, within_s=WITHIN_S)
    assert shop.notes.jobs("begun") == Counter({job.id: 3})
    # On a slow machine its first lease may have run out before.
    assert work.err.count("gave back 1 job") <= 1
    assert work.stop() == 0


def test_a_job_in_a_process_of_its_own_has_ended_before_it_runs_again(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write(
        """
        from tambomq.jobs import Context, Jobs

        jobs = Jobs("q", redis_url=URL)

        @jobs.job(process=True)
        def compute(go: str, ctx: Context) -> None:
            before = [int(line.split()[1]) for line in open(NOTES)]
            os.write(_notes, f"begun {os.getpid()} {sum(map(alive, before))}\\n".encode())
            while not os.path.exists(go):
                time.sleep(0.02)

        def alive(pid):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return 0
            return 1

        worker = jobs.worker(claim_min_idle_ms=3_600_000)
    """.replace("NOTES", repr(str(shop.notes.path)))
    )
    work = shop.work("app").ready()
    queue.add("compute", {"go": str(shop.folder / "go")})
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    (killed,) = work.pids()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: shop.notes.count("begun") == 2, within_s=WITHIN_S)
    # Each notes how many of those before it were alive.
    assert shop.notes.jobs("begun") == Counter({"0": 2})
    (shop.folder / "go").touch()
    eventually(lambda: queue.get_job_counts().active == 0, within_s=WITHIN_S)
    assert work.stop() == 0


def test_a_function_in_a_thread_is_given_back_when_its_process_has_ended(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        def handle(job: Job) -> None:
            note("begun", job)
            threading.Event().wait()

        worker = Worker("q", handle, redis_url=URL, claim_min_idle_ms=3_600_000)
    """)
    work = shop.work("app", "--drain-s", "200ms").ready()
    queue.add("never", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    assert work.stop() == 0
    assert "gave back 1 job of queue 'q'" in work.err
    assert queue.get_job_counts().waiting == 1


def test_a_consumer_id_of_the_users_own_is_not_released(shop: Shop, queue: BlockingQueue) -> None:
    """Another process may have the same, and live."""
    shop.write(HOURS.replace('"q", handle', '"q", handle, consumer_id="me"'))
    work = shop.work("app").ready()
    add(queue, shop, 1)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    (killed,) = work.pids()
    os.kill(killed, signal.SIGKILL)
    ended(killed)
    work.says("restarting now", "err")
    assert work.ready().stop() == 0
    assert "gave back" not in work.err
    assert queue.get_job_counts().active == 1
