"""Run by the Python of a package without extras: clients and workers work, GOMQ says why not."""

from __future__ import annotations

import asyncio
import importlib
import sys

from tambomq.chasqui import Job, Queue, Worker
from tambomq.extras import EXTRAS, how_to_install, is_installed
from tambomq.kqueue import KqueueServer, Producer
from tambomq.rsmq import Message, Rsmq, RsmqWorker


def send_and_handle(url: str) -> None:
    """Send a message and let a worker handle it."""
    with Rsmq(url) as rsmq:
        rsmq.create_queue("wheel")
        rsmq.send_message("wheel", "one")
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.text)
        worker.stop()

    worker = RsmqWorker("wheel", handle, url=url)
    worker.run_forever()
    assert handled == ["one"]


async def add_and_run(url: str) -> None:
    """Add a job and let a worker run it."""

    async def handle(job: Job) -> str:
        return f"{job.name} {job.data}"

    worker = Worker("wheel", handle, redis_url=url, store_results=True)
    running = asyncio.create_task(worker.run())
    async with Queue("wheel", redis_url=url) as queue:
        job = await queue.add("smoke", 1)
        assert await job.wait_for_result() == "smoke 1"
    await worker.close()
    await running


async def produce() -> None:
    """Send to a broker of this process."""
    async with KqueueServer("127.0.0.1", 0) as server:
        with await asyncio.to_thread(Producer, *server.address) as producer:
            await asyncio.to_thread(producer.send, "wheel", "one")


def complaint_of_gomq() -> str:
    """What its client says without gRPC."""
    try:
        importlib.import_module("tambomq.gomq").GomqClient  # noqa: B018  (asking imports gRPC)
    except ModuleNotFoundError as missing:
        return str(missing)
    return ""


def main() -> None:
    """Print what was seen."""
    url = sys.argv[1]
    send_and_handle(url)
    asyncio.run(add_and_run(url))
    asyncio.run(produce())
    assert not any(is_installed(extra) for extra in set(EXTRAS.values()))
    assert how_to_install("gomq") in complaint_of_gomq()
    print("all as expected")  # noqa: T201  (read by the test)


if __name__ == "__main__":
    main()
