"""Killed workers and restarted servers: no confirmed message is lost."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import cast

import pytest
import redis

from tambomq.rsmq import AsyncRsmq, Message, Rsmq, RsmqWorker
from tests.rsmq.worker_process import worker_process
from tests.servers.poll import eventually, eventually_async
from tests.servers.run import Server


def bodies(db: redis.Redis, key: str) -> list[str]:
    return [str(line, "utf-8").split()[1] for line in cast("list[bytes]", db.lrange(key, 0, -1))]


@pytest.mark.slow
def test_a_killed_workers_message_is_run_by_another_within_its_lease_and_a_second(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q", vt=2)
    rsmq.send_message("q", "job")
    with worker_process(server.url, hang=True) as first:
        eventually(lambda: db.llen("begun"), within_s=20)
        with worker_process(server.url):
            # Both are subscribed by now: the second worker is up, and idle.
            eventually(lambda: db.pubsub_numsub("rsmq:rt:q")[0][1] == 2, within_s=20)
            first.kill()
            eventually(lambda: db.llen("ended"), within_s=2 + 1)
            eventually(lambda: rsmq.get_queue_attributes("q").msgs == 0)


@pytest.mark.slow
def test_a_message_that_kills_its_workers_ends_in_the_dead_letter_queue(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q", vt=1)
    rsmq.send_message("q", "poison")
    for deaths in (1, 2):
        with worker_process(server.url, die=True, max_receives=2) as worker:
            assert worker.wait(120) == 1
        assert db.llen("begun") == deaths
    with worker_process(server.url, die=True, max_receives=2) as worker:
        eventually(lambda: "q-dead" in rsmq.list_queues(), within_s=30)
        assert worker.poll() is None
    (dead,) = rsmq.peek_messages("q-dead")
    assert (dead.text, dead.reason) == ("poison", "received 2 times and never finished")


@pytest.mark.slow
def test_workers_killed_under_load_lose_nothing(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q", vt=2)
    sent = [f"m{n}" for n in range(3000)]
    rsmq.send_messages("q", sent)
    with ExitStack() as crew:
        workers = [crew.enter_context(worker_process(server.url, concurrency=4)) for _ in range(2)]
        for kill in range(4):
            # Kill after some more work is done, so that handlers are running.
            eventually(lambda n=kill: db.llen("ended") > 300 * (n + 1), within_s=30)  # type: ignore[misc]
            workers.pop(0).kill()
            workers.append(crew.enter_context(worker_process(server.url, concurrency=4)))
        eventually(lambda: rsmq.get_queue_attributes("q").msgs == 0, within_s=40)
    assert set(bodies(db, "ended")) == set(sent)
    assert rsmq.list_queues() == ["q"]
    # Only messages in flight in a killed worker ran again: at most four each time.
    run_twice = [body for body, times in Counter(bodies(db, "begun")).items() if times > 1]
    assert len(run_twice) <= 4 * 4 * 2


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_worker_survives_the_restart_of_its_server(
    private_server: Server, end: str
) -> None:
    seen: Counter[str] = Counter()

    async def handler(message: Message) -> None:
        seen[message.text] += 1
        await asyncio.sleep(0.002)

    sent = [str(n) for n in range(1500)]
    async with AsyncRsmq(private_server.url) as rsmq:
        await rsmq.create_queue("q", vt=3)
        await rsmq.send_messages("q", sent)
        worker = RsmqWorker("q", handler, url=private_server.url, concurrency=10)
        task = asyncio.create_task(worker.run())
        for done in (200, 700):
            await eventually_async(lambda n=done: len(seen) > n, within_s=20)  # type: ignore[misc]
            await asyncio.to_thread(getattr(private_server, end))
            await asyncio.to_thread(private_server.restart)
        await eventually_async(lambda: set(seen) == set(sent), within_s=30)

        async def empty() -> bool:
            return (await rsmq.get_queue_attributes("q")).msgs == 0

        await eventually_async(empty, within_s=20)
        worker.stop()
        await task
    # A receive whose reply was lost hides its messages for vt; they are delivered again.
    assert max(seen.values()) <= 3


@pytest.mark.slow
async def test_cut_connections_cost_neither_messages_nor_the_worker(
    server: Server, db: redis.Redis
) -> None:
    seen: Counter[str] = Counter()

    async def handler(message: Message) -> None:
        seen[message.text] += 1

    sent = [str(n) for n in range(20_000)]
    async with AsyncRsmq(server.url) as rsmq:
        await rsmq.create_queue("q", vt=1)
        await rsmq.send_messages("q", sent)
        worker = RsmqWorker("q", handler, url=server.url, concurrency=10)
        task = asyncio.create_task(worker.run())
        until = time.monotonic() + 3
        for turn in itertools.count():
            await eventually_async(lambda n=turn: len(seen) >= min(n * 200, len(sent)))  # type: ignore[misc]
            await asyncio.to_thread(
                db.execute_command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"
            )
            await asyncio.to_thread(db.execute_command, "CLIENT", "KILL", "TYPE", "pubsub")
            if time.monotonic() > until:
                break
        await eventually_async(lambda: set(seen) == set(sent), within_s=40)
        worker.stop()
        await task
        with suppress(redis.ConnectionError):
            assert (await rsmq.get_queue_attributes("q")).msgs == 0
