"""RSMQ workers on a cluster where the replica of a killed node takes over."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tambomq.rsmq import AsyncRsmq, Message, RsmqWorker
from tambomq.store.roundtrip import slot_of
from tests.rsmq.working import working
from tests.servers import eventually_async
from tests.servers.cluster import Cluster

pytestmark = pytest.mark.slow

HOME = 1
"""The node that the queue is on."""
PATIENCE_S = 120
WITHIN_S = 30


def namespace_on(cluster: Cluster) -> str:
    return next(ns for n in range(100) if cluster.home(slot_of(ns := f"{{rsmq-{n}}}")) == HOME)


async def test_a_worker_goes_on_at_the_replica_and_handles_no_message_twice() -> None:
    begun, go = Counter[str](), asyncio.Event()

    async def handler(message: Message) -> None:
        begun[message.text] += 1
        await go.wait()

    with Cluster(replicated=[HOME]) as cluster:
        url, ns = cluster.url(0, 2), namespace_on(cluster)
        async with AsyncRsmq(url, ns=ns, patience_s=PATIENCE_S) as rsmq:
            await rsmq.create_queue("q", vt=60)
            await rsmq.send_messages("q", ["a", "b", "c"])
            worker = RsmqWorker("q", handler, url=url, ns=ns)
            async with working(worker):
                await eventually_async(lambda: begun.total() == 3, within_s=WITHIN_S)
                cluster.replicate(HOME, f"{ns}:marker")
                killed = cluster.kill_master(HOME)
                # They end while no node has their queue.
                go.set()
                await rsmq.send_messages("q", ["d", "e"])
                await eventually_async(lambda: worker.stats.done == 5, within_s=WITHIN_S)
                await asyncio.to_thread(cluster.restart, killed)
                await rsmq.send_message("q", "f")
                await eventually_async(lambda: worker.stats.done == 6, within_s=WITHIN_S)
            left = (await rsmq.get_queue_attributes("q")).msgs
    assert begun == Counter("abcdef")
    assert (worker.stats.lost, left) == (0, 0)
