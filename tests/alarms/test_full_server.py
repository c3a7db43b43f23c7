"""Consumers that start when the server's memory is full can drain it, in every protocol."""

from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Worker
from tambomq.errors import StoreFull
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.rsmq import Rsmq
from tests.alarms.stores import opened_store
from tests.gomq.conftest import Peer, publish
from tests.servers import Server, eventually_async

COUNT = 200
BODY = "x" * 10_000
LIMIT = 1 << 20


def fill(server: Server) -> None:
    """Set a limit that is already exceeded."""
    with redis.Redis.from_url(server.url) as db:
        db.config_set("maxmemory-policy", "noeviction")
        db.config_set("maxmemory", LIMIT)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            db.set("more", "x")


def test_rsmq_is_drained(private_server: Server) -> None:
    with Rsmq(private_server.url) as rsmq:
        rsmq.create_queue("q")
        ids = rsmq.send_messages("q", [BODY] * COUNT)
        fill(private_server)
        with pytest.raises(StoreFull):
            rsmq.send_message("q", BODY)
        found = []
        while message := rsmq.receive_message("q"):
            found.append(message.id)
            assert rsmq.delete_message("q", message.id, receipt=message.receipt)
        assert found == ids


async def test_chasqui_is_drained_by_its_first_worker(private_server: Server) -> None:
    with BlockingQueue("q", redis_url=private_server.url) as queue:
        queue.add_bulk([{"name": "n", "data": BODY, "job_id": str(n)} for n in range(COUNT)])
        fill(private_server)
        with pytest.raises(StoreFull):
            queue.add("n", BODY)
    done = set[str]()

    async def handle(job: Job) -> None:
        done.add(job.id)

    worker = Worker("q", handle, redis_url=private_server.url)
    running = asyncio.ensure_future(worker.run())
    try:
        await eventually_async(lambda: len(done) == COUNT, within_s=20)
    finally:
        await worker.close()
        await running


async def test_gomq_is_drained_by_its_first_consumers(private_server: Server) -> None:
    async with opened_store(private_server.url) as store:
        service = Service(store, Options())
        await service.start()
        try:
            await publish(service, "k", *([BODY.encode()] * COUNT))
            fill(private_server)
            with pytest.raises(StoreFull):
                await service.publish(pb.PublishRecord(key="k", payload=b"x"), Caller("1.2.3.4:5"))
            peers = [
                Peer(service, name, consumer) for name in ("p", "o") for consumer in ("c", "d")
            ]
            for peer in peers:
                await peer.subscribe("k")
            found = dict.fromkeys(range(len(peers)), 0)

            async def all_came() -> bool:
                for place, peer in enumerate(peers):
                    found[place] += len(await peer.observe())
                return set(found.values()) == {COUNT}

            await eventually_async(all_came, within_s=20)
        finally:
            await service.stop()
