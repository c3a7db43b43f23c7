"""The worker in this process, against a real server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat, InvalidValue, QueueNotFound, SettingsError
from tambomq.rsmq import AsyncRsmq, Backoff, Message, Reject, Rsmq, RsmqWorker
from tests.rsmq.working import AT_ONCE, send, working
from tests.servers.poll import eventually_async
from tests.servers.run import Server


async def test_each_message_is_handled_once_and_deleted(server: Server, rsmq: Rsmq) -> None:
    bodies = [str(n) for n in range(1000)]
    await send(server, *bodies)
    seen: Counter[str] = Counter()

    async def handler(message: Message) -> None:
        seen[message.text] += 1

    worker = RsmqWorker("q", handler, url=server.url, concurrency=50)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 1000)
    assert seen == Counter(bodies)
    assert rsmq.get_queue_attributes("q").msgs == 0
    assert (worker.stats.received, worker.stats.failed, worker.stats.lost) == (1000, 0, 0)


async def test_plain_functions_run_in_threads_side_by_side(server: Server) -> None:
    await send(server, "a", "b", "c")
    meeting = threading.Barrier(3, timeout=30)

    def handler(message: Message) -> None:
        meeting.wait()

    worker = RsmqWorker("q", handler, url=server.url, concurrency=3)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 3)


class AsyncCallable:
    """A handler that is an object."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, message: Message) -> None:
        self.seen.append(message.text)


async def test_objects_and_partials_are_handlers_too(server: Server) -> None:
    handler = AsyncCallable()
    for wrapped in (handler, partial(handler.__call__)):
        await send(server, "a")
        worker = RsmqWorker("q", wrapped, url=server.url)
        async with working(worker):
            await eventually_async(lambda worker=worker: worker.stats.done == 1)  # type: ignore[misc]
    assert handler.seen == ["a", "a"]


async def test_never_more_handlers_than_concurrency(server: Server) -> None:
    await send(server, *map(str, range(60)))
    running, maximum = 0, 0

    async def handler(_: Message) -> None:
        nonlocal running, maximum
        running += 1
        maximum = max(maximum, running)
        await asyncio.sleep(0.005)
        running -= 1

    worker = RsmqWorker("q", handler, url=server.url, concurrency=7)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 60)
    assert maximum == 7


async def test_a_sent_message_wakes_an_idle_worker(server: Server) -> None:
    await send(server)
    handled = asyncio.Event()

    async def handler(_: Message) -> None:
        handled.set()

    async with (
        working(RsmqWorker("q", handler, url=server.url)),
        AsyncRsmq(server.url, realtime=True) as sender,
    ):
        await sender.send_message("q", "wake up")
        await asyncio.wait_for(handled.wait(), 30)


async def test_a_failed_message_is_retried_until_it_succeeds(server: Server) -> None:
    await send(server, "shy")
    tries: list[int] = []

    async def handler(message: Message) -> None:
        tries.append(message.rc)
        if len(tries) < 3:
            raise ValueError("not yet")

    worker = RsmqWorker("q", handler, url=server.url, backoff=AT_ONCE)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 1)
    assert tries == [1, 2, 3]
    assert (worker.stats.failed, worker.stats.retried, worker.stats.buried) == (2, 2, 0)


async def test_a_failed_message_waits_for_its_backoff(server: Server, rsmq: Rsmq) -> None:
    await send(server, "later")

    async def handler(_: Message) -> None:
        raise ValueError

    worker = RsmqWorker("q", handler, url=server.url, backoff=Backoff(100, 100, jitter=0))
    async with working(worker):
        await eventually_async(lambda: worker.stats.retried == 1)
    (waiting,) = rsmq.peek_messages("q")
    assert 90_000 < waiting.visible_at - waiting.fr < 110_000


async def test_after_max_receives_a_message_is_a_dead_letter_with_its_reason(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "poison")

    async def handler(_: Message) -> None:
        raise ValueError("cannot read this")

    worker = RsmqWorker("q", handler, url=server.url, max_receives=3, backoff=AT_ONCE)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 1)
    assert worker.stats.failed == 3
    assert rsmq.get_queue_attributes("q").msgs == 0
    assert rsmq.list_queues() == ["q", "q-dead"]
    (dead,) = rsmq.peek_messages("q-dead")
    assert (dead.text, dead.reason) == ("poison", "ValueError: cannot read this")
    received = rsmq.receive_message("q-dead")
    assert received is not None
    assert rsmq.delete_message("q-dead", received.id)
    assert rsmq.get_queue_stats("q-dead").stray_fields == 0


async def test_reject_buries_at_once(server: Server, rsmq: Rsmq) -> None:
    await send(server, "nonsense")

    def handler(_: Message) -> None:
        raise Reject("no such customer")

    worker = RsmqWorker("q", handler, url=server.url, dead_queue="dead-letters")
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 1)
    (dead,) = rsmq.peek_messages("dead-letters")
    assert (dead.text, dead.reason) == ("nonsense", "no such customer")


async def test_a_message_that_kills_workers_is_buried_without_running(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "killer", vt=0)
    for _ in range(3):
        assert rsmq.receive_message("q") is not None

    async def handler(_: Message) -> None:
        pytest.fail("must not be run a fourth time")

    worker = RsmqWorker("q", handler, url=server.url, max_receives=3)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 1)
    (dead,) = rsmq.peek_messages("q-dead")
    assert dead.reason == "received 3 times and never finished"


async def test_without_max_receives_a_message_is_retried_for_ever(server: Server) -> None:
    await send(server, "stubborn")

    async def handler(message: Message) -> None:
        if message.rc <= 30:
            raise ValueError

    worker = RsmqWorker("q", handler, url=server.url, max_receives=None, backoff=AT_ONCE)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 1)


async def test_a_handler_that_takes_too_long_has_failed(server: Server) -> None:
    await send(server, "slow")

    async def handler(message: Message) -> None:
        if message.rc == 1:
            await asyncio.Event().wait()

    worker = RsmqWorker("q", handler, url=server.url, timeout_s=0.05, backoff=AT_ONCE)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 1)
    assert worker.stats.failed == 1


async def test_a_handler_that_raises_cancelled_error_has_failed(server: Server) -> None:
    await send(server, "odd")

    async def handler(message: Message) -> None:
        if message.rc == 1:
            raise asyncio.CancelledError

    worker = RsmqWorker("q", handler, url=server.url, backoff=AT_ONCE)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 1)


async def test_a_queue_that_does_not_exist_is_an_error_at_once(server: Server) -> None:
    with pytest.raises(QueueNotFound):
        await RsmqWorker("nowhere", print, url=server.url).run()


async def test_a_queue_deleted_under_a_worker_ends_it_after_its_handlers(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "last")
    begun, finish, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(_: Message) -> None:
        begun.set()
        await finish.wait()
        ended.set()

    worker = RsmqWorker("q", handler, url=server.url)
    task = asyncio.create_task(worker.run())
    await begun.wait()
    rsmq.delete_queue("q")
    finish.set()
    with pytest.raises(QueueNotFound):
        await asyncio.wait_for(task, 60)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": 0}, InvalidValue),
        ({"vt": -1}, InvalidValue),
        ({"max_receives": 0}, InvalidValue),
        ({"dead_queue": "a:b"}, InvalidFormat),
        ({"dead_queue": "q"}, InvalidFormat),
        ({"url": "http://x"}, SettingsError),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RsmqWorker("q", print, **options)


async def test_an_unknown_heartbeat_is_refused(server: Server) -> None:
    await send(server)
    with pytest.raises(SettingsError, match="heartbeat"):
        await RsmqWorker("q", print, url=server.url, heartbeat="pigeon").run()


async def test_scripts_may_be_flushed_at_any_time(server: Server, db: redis.Redis) -> None:
    await send(server, *map(str, range(500)))
    seen: Counter[str] = Counter()

    async def handler(message: Message) -> None:
        seen[message.text] += 1
        if len(seen) % 20 == 0:
            db.script_flush()

    worker = RsmqWorker("q", handler, url=server.url, concurrency=5)
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 500, within_s=20)
    assert set(seen.values()) == {1}


async def test_a_reason_is_stored_whatever_characters_it_has(server: Server, rsmq: Rsmq) -> None:
    await send(server, "odd")

    def handler(_: Message) -> None:
        raise Reject("\udcff\0 café " + "x" * 10_000)

    worker = RsmqWorker("q", handler, url=server.url)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 1)
    (dead,) = rsmq.peek_messages("q-dead")
    assert dead.reason is not None
    assert dead.reason.startswith("\\udcff\0 café xxx")
    assert len(dead.reason) < 5000


async def test_a_message_that_cannot_be_settled_does_not_stop_its_runner(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    await send(server, "a", "b", "c")
    db.set("rsmq:q-dead", "not a queue")
    worker = RsmqWorker("q", reject, url=server.url, concurrency=1)
    async with working(worker):
        await eventually_async(lambda: worker.stats.received == 3)
    assert worker.stats.buried == 0
    assert rsmq.get_queue_attributes("q").msgs == 3


async def reject(message: Message) -> None:
    raise Reject(message.text)
