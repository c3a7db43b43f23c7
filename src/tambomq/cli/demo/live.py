"""The traffic of ``tambo demo --live``: all four protocols as an application would use them.

It goes on until it is cancelled. Some of it fails on purpose, so that there are retries and dead
letters to look at. Every play deletes what it made, unless it is to be kept.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from tambomq.chasqui import BackoffSpec, Job, Queue, RepeatPattern, UnrecoverableError, Worker
from tambomq.cli.demo.brokers import forget, leave
from tambomq.cli.demo.display import DemoPlan, DemoResult, together
from tambomq.cli.demo.redis import silent
from tambomq.errors import QueueNotFound
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
from tambomq.rsmq import AsyncRsmq, Message, RsmqWorker
from tambomq.rsmq.worker.backoff import Backoff

_SCHEDULE_MS: Final = 5000
_LOOK_EVERY_S: Final = 0.5
_EVERY_S: Final = 0.25
"""The mean time between two sends of a producer."""
_REASONS: Final = ("template has no field 'total'", "attachment is larger than 10 MiB")


async def _numbers() -> AsyncIterator[int]:
    """Yield numbers from 0 on, at irregular times."""
    number = 0
    while True:
        yield number
        number += 1
        await asyncio.sleep(min(2.0, random.expovariate(1 / _EVERY_S)))


async def rsmq(plan: DemoPlan, outcome: DemoResult) -> None:
    """Send invoices to a worker; a few cannot be read and end in the dead-letter queue."""
    queue = f"{plan.name}-invoices"
    outcome.expect(0, "failed")

    async def book(message: Message) -> None:
        await asyncio.sleep(random.expovariate(1 / 0.1))
        invoice = json.loads(message.body)
        if not str(invoice["amount"]).isdecimal():
            outcome.note("failed")
            raise ValueError(f"amount {invoice['amount']!r} is not a number")
        outcome.got()

    async with AsyncRsmq(plan.redis_url, journal=(queue,) if plan.keep else ()) as client:
        try:
            await client.create_queue(queue, vt=10)
            worker = RsmqWorker(
                queue,
                book,
                url=plan.redis_url,
                concurrency=4,
                max_receives=2,
                backoff=Backoff(first_s=1.0),
                grace_s=1.0,
                journal=plan.keep,
            )
            with silent("tambomq.rsmq"):
                await together(worker.run(), _invoices(client, queue, outcome))
        finally:
            for each in (queue, f"{queue}-dead"):
                with suppress(QueueNotFound):
                    if not plan.keep:
                        await client.delete_queue(each)


async def _invoices(client: AsyncRsmq, queue: str, outcome: DemoResult) -> None:
    async for number in _numbers():
        amount: Any = "twelve" if number % 20 == 7 else random.randint(5, 500)  # noqa: PLR2004
        invoice = {"invoice": number, "amount": amount, "currency": "EUR"}
        await client.send_message(queue, json.dumps(invoice))
        outcome.sent += 1


async def chasqui(plan: DemoPlan, outcome: DemoResult) -> None:
    """Send mails: some later, some again, some never, and a digest every few seconds."""
    outcome.expect(0, "failed")
    name = f"{plan.name}-mails"

    async def send(job: Job) -> None:
        await asyncio.sleep(random.expovariate(1 / 0.15))
        kind = job.data.get("fault") if isinstance(job.data, dict) else None
        if kind == "refused" and job.attempt == 1:
            outcome.note("failed")
            raise ConnectionRefusedError("smtp.example.com:25: connection refused")
        if kind == "address":
            outcome.note("failed")
            raise UnrecoverableError(f"'{job.data['to']}' is not an address")
        if kind == "template":
            outcome.note("failed")
            raise RuntimeError(random.choice(_REASONS))
        outcome.got()

    async with Queue(name, redis_url=plan.redis_url, journal=plan.keep) as queue:
        worker = Worker(
            name, send, redis_url=plan.redis_url, concurrency=5, max_attempts=3, grace_s=1.0,
            backoff=BackoffSpec("fixed", 800), journal=plan.keep,
        )  # fmt: skip
        try:
            every = RepeatPattern.every(_SCHEDULE_MS)
            await queue.upsert_repeatable_job("digest", {"to": "all"}, repeat=every)
            mornings = RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/Berlin")
            await queue.upsert_repeatable_job("report", {"to": "board"}, repeat=mornings)
            with silent("tambomq.chasqui"):
                await together(worker.run(), _mails(queue, outcome))
        finally:
            if not plan.keep:
                await queue.obliterate(force=True)


async def _mails(queue: Queue, outcome: DemoResult) -> None:
    faults = {5: "refused", 11: "address", 17: "template"}
    async for number in _numbers():
        fault = faults.get(number % 24)
        to = f"user{number}.example.com" if fault == "address" else f"user{number}@example.com"
        delay_ms = random.randint(2000, 20_000) if number % 8 == 3 else None  # noqa: PLR2004
        kind = random.choice(("welcome", "receipt", "invoice"))
        await queue.add(kind, {"to": to, "fault": fault}, delay_ms=delay_ms)
        outcome.sent += 1


async def gomq(plan: DemoPlan, outcome: DemoResult) -> None:
    """Publish prices to a consumer with two peers: one observes, the other one watches."""
    key, consumer = f"{plan.name}-prices", f"{plan.name}-dashboard"
    outcome.expect(0)
    peers = [f"{consumer}-{place}" for place in ("office", "phone")]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(forget, plan, outcome, key, [(consumer, peer) for peer in peers])
        clients = [
            AsyncGomqClient(plan.gomq, peer=peer, token=plan.token, tls=plan.tls) for peer in peers
        ]
        for client in clients:
            stack.push_async_callback(leave, client, key, consumer)
            await client.subscribe(key, consumer)
        await together(
            _prices(clients[0], key, outcome),
            _observe(clients[0], consumer, outcome),
            _watch(clients[1], consumer, outcome),
        )


async def _prices(client: AsyncGomqClient, key: str, outcome: DemoResult) -> None:
    async for number in _numbers():
        price = round(random.gauss(100, 5), 2)
        await client.publish(key, json.dumps({"tick": number, "price": price}))
        outcome.sent += 1


async def _observe(client: AsyncGomqClient, consumer: str, outcome: DemoResult) -> None:
    while True:
        outcome.got(len(await client.observe(consumer)))
        await asyncio.sleep(_LOOK_EVERY_S)


async def _watch(client: AsyncGomqClient, consumer: str, outcome: DemoResult) -> None:
    async for _ in client.watch(consumer):
        outcome.got()


async def kqueue(plan: DemoPlan, outcome: DemoResult) -> None:
    """Send clicks and views; one consumer takes the clicks, another one everything."""
    clicks, views = (f"{plan.name}-{what}".encode() for what in ("clicks", "views"))
    host, port = plan.kqueue
    outcome.expect(0)
    async with (
        AsyncProducer(host, port, tls=plan.tls) as producer,
        AsyncConsumer(host, port, tls=plan.tls) as one,
        AsyncConsumer(host, port, tls=plan.tls) as every,
    ):
        await one.subscribe(clicks)
        await every.subscribe_all()

        async def produce() -> None:
            async for number in _numbers():
                page = f"/articles/{random.randint(1, 40)}"
                pairs = [(views, json.dumps({"view": number, "page": page}))] * 5
                outcome.sent += await producer.send_many([*pairs, (clicks, page)])

        async def consume(consumer: AsyncConsumer) -> None:
            while True:
                message = await consumer.receive(_LOOK_EVERY_S)
                if message is not None and message.queue in (clicks, views):
                    outcome.got()

        await together(produce(), consume(one), consume(every))
