"""Handlers that misbehave: they block the event loop, never return, fork, exit, or leak memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from tambomq.chasqui import BlockingQueue
from tambomq.rsmq import Rsmq
from tests.serve.processes import alive
from tests.servers import Server, eventually
from tests.work.supervising import WITHIN_S, Shop, Supervised, ended

# Each starts `tambo work` with its processes, and ends them in some way.
pytestmark = pytest.mark.slow


@pytest.fixture
def queue(server: Server) -> Iterator[BlockingQueue]:
    opened = BlockingQueue("q", redis_url=server.url)
    yield opened
    opened.close()


def test_a_forked_copy_that_returns_from_its_handler_is_ended(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            if os.fork():
                os.wait()
            note("ended", job)

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app").ready()
    job = queue.add("fork", None)
    work.says("completed in")
    # Both left the handler, but only the parent is a worker.
    assert shop.notes.jobs("ended") == {job.id: 2}
    assert work.out.count("completed in") == 1
    assert f"forked by a handler (q fork {job.id})" in work.err
    assert work.health()["1"]["ok"]
    assert work.stop() == 0


def test_a_handler_that_exits_has_only_failed(shop: Shop, queue: BlockingQueue, rsmq: Rsmq) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            sys.exit(3)

        worker = Worker("q", handle, redis_url=URL, max_attempts=1)
        messages = RsmqWorker("letters", handle, url=URL, max_receives=1)
    """)
    rsmq.create_queue("letters")
    work = shop.work("app").ready()
    pids = work.pids()
    queue.add("exit", None)
    rsmq.send_message("letters", "exit")
    work.says(r"q exit \S+ failed after .*dead-lettered: SystemExit")
    work.says(r"letters \S+ failed after .*dead-lettered: SystemExit")
    assert work.pids() == pids
    assert work.stop() == 0


def test_a_process_that_a_handler_ends_is_replaced_with_growing_pauses(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            os._exit(7)

        worker = Worker("q", handle, redis_url=URL, claim_min_idle_ms=60_000)
    """)
    work = shop.work("app")
    for _ in range(3):
        queue.add("exit", None)
    work.says("process 1 .* ended with exit code 7", "err")
    # The last pause is long enough to ask for the health meanwhile, also on a busy machine.
    for pause in ("0.5", "1", "2", "4"):
        queue.add("exit", None)
        work.says(f"exit code 7.*; restarting in {pause} s", "err")
    status, page = work.get("/healthz")
    assert (status, "restarted in 4 s" in page) == (503, True)
    assert work.stop() == 0


def test_a_job_that_never_ends_is_given_back_after_the_drain(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            await asyncio.Event().wait()

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app", "--drain-s", "200ms").ready()
    queue.add("never", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    assert work.stop() == 0
    assert "given back after" in work.out
    assert queue.get_job_counts().waiting == 1


def test_a_second_signal_gives_jobs_back_at_once(shop: Shop, queue: BlockingQueue) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            await asyncio.Event().wait()

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app", "--drain-s", "1h").ready()
    queue.add("never", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    work.signal(signal.SIGINT)
    work.says("SIGINT: finishing what runs", "err")
    eventually(lambda: work.get("/readyz")[0] == 503, within_s=WITHIN_S)
    work.signal(signal.SIGINT)
    assert work.wait() == 0
    assert queue.get_job_counts().waiting == 1


def test_a_thread_that_never_returns_does_not_keep_its_process(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        def handle(job: Job) -> None:
            note("begun", job)
            threading.Event().wait()

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app", "--drain-s", "200ms").ready()
    queue.add("never", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    assert work.stop() == 0
    assert "1 threads still run handlers" in work.err


def test_after_sigusr1_nothing_more_is_read(shop: Shop, queue: BlockingQueue) -> None:
    shop.write()
    work = shop.work("app").ready()
    work.signal(signal.SIGUSR1)
    eventually(lambda: work.get("/readyz")[0] == 503, within_s=WITHIN_S)
    eventually(lambda: work.metric("in_flight") == 0, within_s=WITHIN_S)
    work.says("SIGUSR1", "err")
    queue.add("later", 0)
    queue.add("later", 0)
    assert work.get("/healthz")[0] == 200  # on purpose, so nothing is wrong
    assert shop.notes.count("begun") == 0
    assert work.stop() == 0


def test_a_blocked_event_loop_is_reported_and_killed_in_the_end(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            time.sleep(3600)

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app", "--drain-s", "0").ready()
    job = queue.add("block", None)
    work.says(f"event loop has been blocked for . s, while q block {job.id} was in flight", "err")
    eventually(lambda: work.get("/healthz")[0] == 503, within_s=30)
    assert work.get("/livez")[0] == 503
    assert "its event loop has been blocked" in work.health()["1"]["why"]
    for said in ("SIGTERM: finishing", "SIGTERM again: giving", "SIGTERM again: killing"):
        work.signal(signal.SIGTERM)
        work.says(said, "err")
    assert work.wait() == 1


def test_processes_with_blocked_loops_end_after_a_killed_supervisor(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        import subprocess

        async def handle(job: Job) -> None:
            child = subprocess.Popen(["sleep", "1000"])
            os.write(_notes, f"begun {child.pid} {job.id}\\n".encode())
            time.sleep(3600)

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app", "--drain-s", "0").ready()
    queue.add("block", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    pids = [*work.pids(), *shop.notes.pids()]
    work.signal(signal.SIGKILL)
    for pid in pids:
        ended(pid)


def test_children_of_a_killed_process_are_ended(shop: Shop, queue: BlockingQueue) -> None:
    shop.write("""
        import subprocess

        async def handle(job: Job) -> None:
            child = subprocess.Popen(["sleep", "1000"])
            os.write(_notes, f"begun {child.pid} {job.id}\\n".encode())
            await asyncio.Event().wait()

        worker = Worker("q", handle, redis_url=URL, claim_min_idle_ms=60_000)
    """)
    work = shop.work("app").ready()
    queue.add("spawn", None)
    eventually(lambda: shop.notes.count("begun") == 1, within_s=WITHIN_S)
    (started,) = shop.notes.pids()
    assert alive(started)
    eventually(lambda: work.metric("in_flight") == 1, within_s=WITHIN_S)
    (pid,) = work.pids()
    os.kill(pid, signal.SIGKILL)
    work.says(r"was killed by SIGKILL.*; \d+\.\d s before, q spawn .* was in flight", "err")
    ended(started)
    assert work.ready().stop() == 0


def test_a_process_that_leaks_is_replaced_after_it_drained(
    shop: Shop, queue: BlockingQueue
) -> None:
    shop.write("""
        kept = []

        async def handle(job: Job) -> None:
            note("begun", job)
            kept.append(bytearray(b"x" * (8 << 20)))
            await asyncio.sleep(0.05)
            note("ended", job)

        worker = Worker("q", handle, redis_url=URL, concurrency=2)
    """)
    work = shop.work("app", "--max-rss", "160MiB", "--quiet").ready()
    queue.add_bulk([{"name": "leak", "data": None} for _ in range(60)])
    eventually(lambda: len(shop.notes.jobs("ended")) == 60, within_s=30)
    eventually(
        lambda: work.metric("process_restarts_total", cause="max_rss") >= 1, within_s=WITHIN_S
    )
    # Drained: every run that began has ended, and none was repeated.
    assert set(shop.notes.jobs("begun").values()) == {1}
    assert shop.notes.jobs("begun") == shop.notes.jobs("ended")
    assert "is replaced: its memory is" in work.err
    assert work.stop() == 0


def was_replaced(work: Supervised, times: int) -> bool:
    return work.metric("process_restarts_total", cause="max_jobs") == times


def test_a_process_is_replaced_after_so_many_jobs(shop: Shop, queue: BlockingQueue) -> None:
    shop.write()
    work = shop.work("app", "--max-jobs", "5", "--concurrency", "1", "--quiet").ready()
    for replaced, count in ((1, 5), (2, 5), (2, 2)):
        queue.add_bulk([{"name": "quick", "data": 0} for _ in range(count)])
        eventually(partial(was_replaced, work, replaced), within_s=WITHIN_S)
    eventually(lambda: len(shop.notes.jobs("ended")) == 12, within_s=WITHIN_S)
    assert len(shop.notes.pids()) == 3
    assert set(shop.notes.jobs("ended").values()) == {1}
    eventually(
        lambda: work.metric("runs_total", queue="q", job="quick", outcome="completed") == 12,
        within_s=WITHIN_S,
    )
    assert "is replaced: it has run 5 jobs" in work.err
    assert work.ready().stop() == 0


def test_a_hook_that_fails_says_where_and_its_process_is_restarted(shop: Shop) -> None:
    shop.write("""
        from tambomq.jobs import Jobs

        mail = Jobs("mail", redis_url=URL)

        @mail.on_start
        def connect() -> None:
            raise RuntimeError("no database")
    """)
    work = shop.work("app")
    why = "the worker of 'mail' failed: RuntimeError: no database"
    work.says(rf"process 1 \(pid \d+\) ended with exit code 1: {why}; restarting now", "err")
    assert '|     raise RuntimeError("no database")' in work.err
    work.says(rf"{why}; restarting in 0.5 s", "err")
    work.stop()
