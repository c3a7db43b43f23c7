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
from tests.rsmq.working import send, working
from tests.servers.poll import eventually, eventually_async
from tests.servers.run import Server
from tests.store.proxy import Proxy


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


async def test_a_worker_that_starts_before_its_server_waits_for_it(
    private_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await send(private_server, "one")
    private_server.kill()
    handled: list[str] = []

    async def handler(message: Message) -> None:
        handled.append(message.text)

    async with working(RsmqWorker("q", handler, url=private_server.url, patience_s=0.2)) as running:
        await eventually_async(lambda: "cannot read 'q'" in caplog.text)
        private_server.restart()
        await eventually_async(lambda: handled == ["one"] or running.done(), within_s=20)
    assert handled == ["one"]


async def test_a_worker_that_waits_for_its_server_can_be_stopped() -> None:
    worker = RsmqWorker("q", print, url="redis://127.0.0.1:1", patience_s=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)
    assert not running.done()
    worker.stop()
    await asyncio.wait_for(running, 60)


async def test_a_credential_provider_that_fails_for_a_while_ends_no_worker(
    server: Server, rsmq: Rsmq, caplog: pytest.LogCaptureFixture
) -> None:
    class Tokens:
        fails = False

        def __call__(self) -> tuple[str, str]:
            if self.fails:
                raise RuntimeError("no token today")
            return "", ""

    tokens, handled = Tokens(), list[str]()

    async def handler(message: Message) -> None:
        handled.append(message.text)

    rsmq.create_queue("q", vt=30)
    with Proxy(server.port) as proxy:
        worker = RsmqWorker("q", handler, url=proxy.url, credentials=tokens, patience_s=0.1)
        async with working(worker) as running:
            rsmq.send_message("q", "one")
            await eventually_async(lambda: worker.stats.done == 1)
            tokens.fails = True
            proxy.hang_up()
            await eventually_async(lambda: "no token today" in caplog.text or running.done())
            tokens.fails = False
            rsmq.send_message("q", "two")
            await eventually_async(lambda: worker.stats.done == 2 or running.done(), within_s=20)
    assert handled == ["one", "two"]
