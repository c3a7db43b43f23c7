"""The traffic of ``tambo demo`` through GOMQ and KqueueMsgQ. Both leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

from tambomq.cli.demo.display import DemoPlan, DemoResult, together
from tambomq.errors import BrokerError, StoreError
from tambomq.gomq import keys
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

_LOOK_EVERY_S: Final = 0.05
_READY: Final = b"ready?"


async def gomq(plan: DemoPlan, outcome: DemoResult) -> None:
    """Publish to two consumers: one observes, the other one watches."""
    outcome.expect(2 * plan.count, "observed", "watched")
    key, names = plan.name, (f"{plan.name}-observes", f"{plan.name}-watches")
    async with AsyncExitStack() as stack:
        # A peer of the same name as its consumer: what it leaves can be found again.
        clients = {
            name: AsyncGomqClient(plan.gomq, peer=name, token=plan.token, tls=plan.tls)
            for name in names
        }
        stack.push_async_callback(forget, plan, outcome, key, [(name, name) for name in names])
        for name, client in clients.items():
            stack.push_async_callback(leave, client, key, name)
            await client.subscribe(key, name)
        outcome.say(f"{plan.count} payloads to the key {key}, for two consumers")
        observer, watcher = clients.values()
        await together(
            _publish(observer, plan, outcome),
            _observe(observer, names[0], plan, outcome),
            _watch(watcher, names[1], plan, outcome),
        )


async def _publish(client: AsyncGomqClient, plan: DemoPlan, outcome: DemoResult) -> None:
    async for numbers in plan.steps():
        outcome.sent += await client.publish_many((plan.name, str(n)) for n in numbers)


async def _observe(client: AsyncGomqClient, name: str, plan: DemoPlan, outcome: DemoResult) -> None:
    found: list[str] = []
    while len(found) < plan.count:
        records = await client.observe(name)
        found += [record.text for record in records]
        outcome.got(len(records))
        if not records:
            await asyncio.sleep(_LOOK_EVERY_S)
    outcome.notes["observed"] = len(found)
    outcome.check(found == _numbers(plan), "the observer got something else")
    outcome.say("the observer has all")


async def _watch(client: AsyncGomqClient, name: str, plan: DemoPlan, outcome: DemoResult) -> None:
    found: list[str] = []
    async for record in client.watch(name):
        found.append(record.text)
        outcome.got()
        if len(found) == plan.count:
            break
    outcome.notes["watched"] = len(found)
    outcome.check(found == _numbers(plan), "the watcher got something else")
    outcome.say("the watcher has all")


async def leave(client: AsyncGomqClient, key: str, consumer: str) -> None:
    """Unsubscribe and close *client*; `forget` deletes the rest."""
    with suppress(BrokerError):
        await client.unsubscribe(key, consumer)
    await client.close()


async def forget(
    plan: DemoPlan, outcome: DemoResult, key: str, peers: Sequence[tuple[str, str]]
) -> None:
    """Delete what unsubscribing leaves: undelivered payloads, and the last action of peers.

    *peers* are pairs of a consumer and one of its peers.
    """
    left = [keys.queue(key), keys.consumers(key), keys.tally(key)]
    for consumer, peer in peers:
        left += [keys.subscriptions(consumer), keys.peers(consumer), keys.last_action(peer)]
        left += [keys.handed(consumer, peer), keys.messages(key, consumer, peer)]
    store = AsyncStore(plan.redis_url)
    try:
        await store.run(Call("UNLINK", tuple(left), (), int, repeatable=True))
        entry = (keys.queue(key),)
        await store.run(Call("SREM", (keys.SUBSCRIBED_KEYS,), entry, int, repeatable=True))
    except StoreError as error:
        outcome.wrong.append(f"something is left behind: {error}")
    finally:
        await store.close()


async def kqueue(plan: DemoPlan, outcome: DemoResult) -> None:
    """Send to two queues; one consumer receives the first, another one both."""
    names = tuple(f"{plan.name}-{n}".encode() for n in (1, 2))
    host, port = plan.kqueue
    outcome.expect(3 * plan.count, "from one queue", "from all queues")
    async with (
        AsyncProducer(host, port, tls=plan.tls) as producer,
        AsyncConsumer(host, port, tls=plan.tls) as one,
        AsyncConsumer(host, port, tls=plan.tls) as every,
    ):
        await one.subscribe(names[0])
        await every.subscribe_all()
        await _until_ready(producer, names[0], (one, every))
        outcome.say(f"{plan.count} messages to each of two queues")
        await together(
            _produce(producer, names, plan, outcome),
            _consume(one, names[:1], plan, outcome),
            _consume(every, names, plan, outcome),
        )


async def _until_ready(
    producer: AsyncProducer, queue: bytes, consumers: tuple[AsyncConsumer, ...]
) -> None:
    """Send until all consumers receive: the protocol does not confirm a subscription."""
    for consumer in consumers:
        while True:
            await producer.send(queue, _READY)
            message = await consumer.receive(_LOOK_EVERY_S)
            if message is not None and message.queue == queue:
                break


async def _produce(
    producer: AsyncProducer, queues: tuple[bytes, ...], plan: DemoPlan, outcome: DemoResult
) -> None:
    async for numbers in plan.steps():
        for queue in queues:
            outcome.sent += await producer.send_many((queue, str(n)) for n in numbers)


async def _consume(
    consumer: AsyncConsumer, queues: tuple[bytes, ...], plan: DemoPlan, outcome: DemoResult
) -> None:
    found: dict[bytes, list[str]] = {queue: [] for queue in queues}
    total = plan.count * len(queues)
    while sum(map(len, found.values())) < total:
        message = await consumer.receive()
        # A subscription to all queues receives foreign messages too.
        if message is None or message.queue not in found or message.body == _READY:
            continue
        found[message.queue].append(message.text)
        outcome.got()
    name = "the consumer of one queue" if len(queues) == 1 else "the consumer of all queues"
    right = all(bodies == _numbers(plan) for bodies in found.values())
    outcome.check(right, f"{name} got something else")
    outcome.notes["from one queue" if len(queues) == 1 else "from all queues"] = total
    outcome.say(f"{name} has all")


def _numbers(plan: DemoPlan) -> list[str]:
    return [str(n) for n in range(plan.count)]
