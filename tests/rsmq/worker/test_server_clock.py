"""The server's clock is set forward or back while messages are hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tambomq.rsmq import Message, Rsmq, RsmqWorker
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.worker.server_clock import ServerClock
from tambomq.store.sync import Store
from tests.rsmq.working import working
from tests.servers import binaries
from tests.servers.clock import SteppedServer, stepped
from tests.servers.poll import eventually_async
from tests.servers.run import Server

KEYS = Keys()
STEP_MS = 600_000


def set_back(db: Any, queue: str = "q") -> None:
    """Change everything stored as if the server's clock had been set back since."""
    messages, receipts = KEYS.messages(queue), KEYS.receipts(queue)
    for id, score in db.zrange(messages, 0, -1, withscores=True):
        db.zadd(messages, {id: score + STEP_MS})
    for id, record in db.hgetall(receipts).items():
        if id:
            receipt, at, hide = record.split()
            seconds, micros = at.split(b".")
            later = int(seconds) + STEP_MS // 1000
            db.hset(receipts, id, b"%b %d.%b %b" % (receipt, later, micros, hide))


def left_ms(rsmq: Rsmq, db: Any) -> dict[str, int]:
    """Milliseconds until each message becomes visible, by body."""
    now = int(db.time()[0]) * 1000
    return {m.text: m.visible_at - now for m in rsmq.peek_messages("q", 1000)}


@pytest.fixture
def held(rsmq: Rsmq, db: redis.Redis) -> list[Message]:
    """Three messages, received before the clock was set back."""
    rsmq.create_queue("q", vt=100)
    rsmq.send_messages("q", "abc")
    held = rsmq.receive_messages("q", 3)
    set_back(db)
    return held


@pytest.mark.parametrize("count", [1, 2])
def test_an_empty_receive_re_hides_messages_after_the_clock_went_back(
    rsmq: Rsmq, db: redis.Redis, held: list[Message], count: int
) -> None:
    assert min(left_ms(rsmq, db).values()) > STEP_MS
    assert rsmq.receive_messages("q", count) == []
    assert all(left <= 102_000 for left in left_ms(rsmq, db).values())
    # The consumer still holds them, for the whole visibility timeout.
    assert all(left > 90_000 for left in left_ms(rsmq, db).values())
    assert rsmq.delete_messages("q", held) == [True] * 3


def test_delayed_messages_and_those_hidden_by_other_clients_are_not_changed(
    rsmq: Rsmq, db: redis.Redis, store: Store, held: list[Message]
) -> None:
    rsmq.send_message("q", "later", delay=3600)
    db.zadd(KEYS.messages("q"), {held[0].id: held[0].visible_at + 2 * STEP_MS})
    before = left_ms(rsmq, db)
    assert store.follow(queue_ops.rewind(KEYS, "q")) == 2
    after = left_ms(rsmq, db)
    assert {body for body in before if after[body] > 102_000} == {"later", "a"}
    assert store.follow(queue_ops.rewind(KEYS, "q")) == 0


def test_a_changed_visibility_is_restored_too(rsmq: Rsmq, db: redis.Redis, store: Store) -> None:
    rsmq.create_queue("q", vt=100)
    rsmq.send_message("q", "x")
    message = rsmq.receive_message("q")
    assert message is not None
    rsmq.change_message_visibility("q", message.id, 50, receipt=message.receipt)
    set_back(db)
    assert store.follow(queue_ops.rewind(KEYS, "q")) == 1
    assert left_ms(rsmq, db)["x"] <= 52_000


def test_with_the_right_clock_nothing_is_re_hidden(
    rsmq: Rsmq, db: redis.Redis, store: Store
) -> None:
    rsmq.create_queue("q", vt=100)
    rsmq.send_messages("q", ["x"] * 1000)
    rsmq.receive_messages("q", 700)
    before = db.zrange(KEYS.messages("q"), 0, -1, withscores=True)
    assert store.follow(queue_ops.rewind(KEYS, "q")) == 0
    assert db.zrange(KEYS.messages("q"), 0, -1, withscores=True) == before
    set_back(db)
    assert store.follow(queue_ops.rewind(KEYS, "q")) == 700


async def test_a_worker_restores_them_though_newer_messages_are_due_first(
    server: Server, rsmq: Rsmq, db: redis.Redis, held: list[Message]
) -> None:
    for message in held:
        rsmq.change_message_visibility("q", message.id, 1, receipt=message.receipt)
    set_back(db)
    rsmq.send_message("q", "busy")
    assert rsmq.receive_message("q", vt=500) is not None
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.text)

    async with working(RsmqWorker("q", handler, url=server.url)):
        await eventually_async(lambda: len(seen) == 3, within_s=20)
    assert sorted(seen) == ["a", "b", "c"]


class RewindCounter:
    """A store that counts the rewinds it is asked for."""

    def __init__(self) -> None:
        self.count = 0

    async def follow(self, _plan: Any) -> int:
        self.count += 1
        return self.count


async def test_a_clock_set_back_triggers_a_rewind_and_one_set_forward_does_not() -> None:
    store: Any = RewindCounter()
    clock, now_ms = ServerClock(store, KEYS, "q"), 1_800_000_000_000

    async def rewound(at_ms: int) -> bool:
        return await clock.watch(message_ops.ReceiveResult([], None, now_ms + at_ms), 30) > 0

    # The first receive has no reference: the clock may have been set back before.
    assert await rewound(0)
    assert not await rewound(0)
    assert not await rewound(500_000)
    assert await rewound(-100_000)
    assert not await rewound(-100_000)
    message = Message("x" * 32, b"", 1, 0, visible_at=now_ms - 200_000 + 30_000)
    assert await clock.watch(message_ops.ReceiveResult([message]), 30)
    assert not await clock.watch(message_ops.ReceiveResult([], None), 30)
    assert store.count == 3


@pytest.fixture
def clocked() -> Iterator[SteppedServer]:
    with stepped(binaries.valkey()) as server:
        yield server


@pytest.mark.slow
async def test_no_message_runs_twice_after_a_step_of_less_than_two_thirds_of_its_lease(
    clocked: SteppedServer,
) -> None:
    runs: list[str] = []
    done = asyncio.Event()

    async def handler(message: Message) -> None:
        runs.append(message.text)
        await done.wait()

    with Rsmq(clocked.url) as rsmq, redis.Redis.from_url(clocked.url) as db:
        rsmq.create_queue("q", vt=30)
        rsmq.send_message("q", "x")
        first, second = (RsmqWorker("q", handler, url=clocked.url) for _ in range(2))
        async with working(first), working(second):
            await eventually_async(lambda: runs == ["x"])
            # The worst moment is just before a renewal.
            await eventually_async(lambda: left_ms(rsmq, db)["x"] < 24_000, within_s=20)
            clocked.step(19)
            await eventually_async(lambda: left_ms(rsmq, db)["x"] > 25_000, within_s=20)
            done.set()
            await eventually_async(lambda: first.stats.done + second.stats.done == 1)
    assert runs == ["x"]


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
async def test_a_message_hidden_for_seconds_is_not_hidden_for_minutes_after_a_step_back(
    clocked: SteppedServer, busy: bool
) -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    with Rsmq(clocked.url) as rsmq:
        rsmq.create_queue("q", vt=30)
        async with working(RsmqWorker("q", handler, url=clocked.url)):
            first = rsmq.send_message("q", "first")
            await eventually_async(lambda: seen == [first])
            held = await received(rsmq, vt=2)
            clocked.step(-600)
            if busy:
                # A newer message is due first: only the worker's monotonic clock shows the step.
                await received(rsmq, vt=100)
            await eventually_async(lambda: held.id in seen, within_s=30)


async def received(rsmq: Rsmq, *, vt: float) -> Message:
    """A message that a consumer received before the worker could, and never settles."""
    held = None
    while held is None:
        rsmq.send_message("q", "x")
        held = rsmq.receive_message("q", vt=vt)
        await asyncio.sleep(0)
    return held
