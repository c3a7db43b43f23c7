"""Helpers for tests of actions: queues with dead letters, and how an operation ended."""

from __future__ import annotations

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tambomq.console.actions.actions import Actions
from tambomq.console.actions.model import Operation
from tambomq.console.model import QueueRef
from tambomq.rsmq import AsyncRsmq
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle
from tambomq.store.aio import AsyncStore
from tests.chasqui.conftest import working
from tests.servers import Server, eventually_async

MAIL = QueueRef("chasqui", "mail")
ORDERS = QueueRef("rsmq", "orders")
REFS = [MAIL, ORDERS, QueueRef("rsmq", "orders-dead"), QueueRef("gomq", "ticks")]


def actions_on(store: AsyncStore, *refs: QueueRef) -> Actions:
    async def known() -> list[QueueRef]:
        return list(refs or REFS)

    return Actions(store, known)


async def kill_jobs(server: Server, count: int, queue: str = "mail") -> list[Job]:
    """Add jobs of two names, and let a worker dead-letter them with two kinds of errors."""

    async def refuse(job: Job) -> None:
        raise UnrecoverableError(
            f"no such card {job.data['n']}" if job.name == "pay" else "the printer is on fire"
        )

    async with Queue(queue, redis_url=server.url) as mail:
        added = [
            await mail.add("pay" if n % 2 else "print", {"n": n}, attempts=1) for n in range(count)
        ]
        async with working(Worker(queue, refuse, redis_url=server.url)):

            async def are_dead() -> bool:
                counts = await mail.get_job_counts()
                return counts.dead >= count and not counts.waiting + counts.active

            await eventually_async(are_dead, within_s=20)
    return added


async def bury_messages(server: Server, count: int, queue: str = "orders") -> list[str]:
    """Send messages, and move them to the dead-letter queue, each with a reason."""
    rsmq, store = AsyncRsmq(server.url), AsyncStore(server.url)
    await rsmq.create_queue(queue)
    ids = [await rsmq.send_message(queue, f"order {n}") for n in range(count)]
    for n, message in enumerate(await rsmq.receive_messages(queue, count)):
        await store.run(settle.bury(Keys(), queue, message, f"{queue}-dead", f"card {n} refused"))
    await store.close()
    await rsmq.close()
    return ids


async def ended(actions: Actions, operation: Operation) -> Operation:
    """Wait for the end of an operation."""

    async def is_over() -> bool:
        return _now(actions, operation).state != "running"

    await eventually_async(is_over, within_s=20)
    return _now(actions, operation)


def _now(actions: Actions, operation: Operation) -> Operation:
    return next(each for each in actions.operations() if each.id == operation.id)
