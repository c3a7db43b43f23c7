"""Plain handlers that hang: they occupy their threads, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tambomq.errors import HandlersStuck
from tambomq.failures import traceback_of
from tambomq.rsmq import Backoff, Message, Rsmq, RsmqWorker
from tambomq.rsmq.worker.threads import HandlerThreads
from tests.rsmq.working import AT_ONCE, send, working
from tests.servers.poll import eventually_async
from tests.servers.run import Server

LONG_S = 200.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The event that hanging handlers wait for; set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


async def test_no_message_is_received_while_hung_handlers_occupy_all_threads(
    server: Server, rsmq: Rsmq, gate: threading.Event
) -> None:
    await send(server, "hang", "hang", *(f"good {n}" for n in range(6)))
    ran: list[str] = []

    def handler(message: Message) -> None:
        ran.append(message.text)
        if message.text == "hang":
            gate.wait(LONG_S)

    # With two receives allowed, a message that timed out without a thread would be dead-lettered.
    worker = RsmqWorker(
        "q", handler, url=server.url, concurrency=2, timeout_s=0.3, max_receives=2, backoff=AT_ONCE
    )
    with pytest.raises(HandlersStuck) as stuck:
        await worker.run()
    assert ran == ["hang", "hang"]
    assert (worker.stats.received, worker.stats.failed, worker.stats.buried) == (2, 2, 0)
    assert sorted(m.rc for m in rsmq.peek_messages("q", 20)) == [0, 0, 0, 0, 0, 0, 1, 1]
    assert len(rsmq.receive_messages("q", 20)) == 8
    assert sorted(stuck.value.threads) == ["rsmq-handler-1", "rsmq-handler-2"]


async def test_a_worker_whose_threads_all_hang_says_which_messages_they_run(
    server: Server, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    await send(server, "hang")
    ids: list[str] = []

    def handler(message: Message) -> None:
        ids.append(message.id)
        gate.wait(LONG_S)

    worker = RsmqWorker("q", handler, url=server.url, concurrency=1, timeout_s=0.1)
    with caplog.at_level(logging.ERROR), pytest.raises(HandlersStuck, match="restart the process"):
        await worker.run()
    assert f"{ids[0]} in rsmq-handler-1" in caplog.text


async def test_one_free_thread_is_enough_to_go_on(server: Server, gate: threading.Event) -> None:
    await send(server, "hang", *"abcdefgh")
    ran: list[str] = []

    def handler(message: Message) -> None:
        ran.append(message.text)
        if message.text == "hang":
            gate.wait(LONG_S)

    worker = RsmqWorker(
        "q", handler, url=server.url, concurrency=2, timeout_s=1.5, backoff=Backoff(60, 60)
    )
    async with working(worker):
        await eventually_async(lambda: worker.stats.done == 8 and worker.stats.retried == 1)
        assert sorted(ran) == [*"abcdefgh", "hang"]


async def test_a_thread_whose_timed_out_handler_returns_is_used_again(
    server: Server, gate: threading.Event
) -> None:
    await send(server, "slow")
    meeting = threading.Barrier(2, timeout=LONG_S)

    def handler(message: Message) -> None:
        if message.text == "slow":
            gate.wait(LONG_S)
        else:
            meeting.wait()

    worker = RsmqWorker(
        "q", handler, url=server.url, concurrency=2, timeout_s=1.5, backoff=Backoff(60, 60)
    )
    async with working(worker):
        await eventually_async(lambda: worker.stats.retried == 1)
        gate.set()
        await send(server, "one", "two")
        await eventually_async(lambda: worker.stats.done == 2)


async def test_the_same_message_may_hang_in_several_threads(
    server: Server, gate: threading.Event
) -> None:
    await send(server, "hang")

    def handler(message: Message) -> None:
        gate.wait(LONG_S)

    worker = RsmqWorker("q", handler, url=server.url, concurrency=3, timeout_s=0.1, backoff=AT_ONCE)
    with pytest.raises(HandlersStuck) as stuck:
        await worker.run()
    assert len(stuck.value.threads) == 3
    assert len(set(stuck.value.threads.values())) == 1


async def test_stop_does_not_wait_for_handlers_that_timed_out(
    server: Server, gate: threading.Event
) -> None:
    await send(server, "hang")

    def handler(message: Message) -> None:
        gate.wait(LONG_S)

    worker = RsmqWorker(
        "q", handler, url=server.url, concurrency=2, timeout_s=0.1, backoff=Backoff(60, 60),
        grace_s=3600,
    )  # fmt: skip
    async with working(worker):
        await eventually_async(lambda: worker.stats.retried == 1)
        worker.stop()


async def test_a_plain_handler_that_raises_has_failed_with_its_own_error(
    server: Server, rsmq: Rsmq
) -> None:
    await send(server, "a", "b", "c")
    errors = {"a": StopIteration(), "b": KeyError("b"), "c": KeyboardInterrupt()}

    def handler(message: Message) -> None:
        raise errors[message.text]

    worker = RsmqWorker("q", handler, url=server.url, timeout_s=60, max_receives=1)
    async with working(worker):
        await eventually_async(lambda: worker.stats.buried == 3)
    assert {m.reason for m in rsmq.peek_messages("q-dead")} == {
        "RuntimeError: the handler raised StopIteration",
        "KeyError: 'b'",
        "RuntimeError: the handler raised KeyboardInterrupt",
    }


async def test_a_timeout_shows_where_the_handler_is(gate: threading.Event) -> None:
    def handler(_: Message) -> None:
        gate.wait(LONG_S)

    threads = HandlerThreads(handler, 1, timeout_s=0.05)
    with pytest.raises(TimeoutError) as timed_out:
        await threads.call(Message("a", b"", 1, 1, 1))
    assert "gate.wait(LONG_S)" in traceback_of(timed_out.value)
    threads.close()


async def test_the_timeout_of_a_handler_counts_from_its_start() -> None:
    """A thread that starts late, as on a busy machine, does not time its message out."""
    run = list[str]()
    threads = HandlerThreads(lambda message: run.append(message.id), 1, timeout_s=0.05)
    start, loop = threads._start_thread, asyncio.get_running_loop()
    threads._start_thread = lambda: loop.call_later(0.5, start)  # type: ignore[method-assign,assignment]
    try:
        await threads.call(Message("a", b"", 1, 1, 1))
    finally:
        threads.close()
    assert run == ["a"]


PROGRAM = """
import sys, threading
from tambomq.rsmq import RsmqWorker

def handler(message):
    threading.Event().wait()

RsmqWorker("q", handler, url=sys.argv[1], concurrency=1, timeout_s=0.1).run_forever()
"""


async def test_a_process_whose_handlers_hang_ends_with_an_error(server: Server) -> None:
    await send(server, "hang")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, server.url, stderr=subprocess.PIPE
    )
    _, stderr = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 1
    assert b"HandlersStuck: all 1 threads of the worker on queue 'q'" in stderr
