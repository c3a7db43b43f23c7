"""Jobs that die in a real worker, for tests of dead letters."""

from __future__ import annotations

import asyncio
import threading

from tambomq.chasqui import BlockingQueue, Job, UnrecoverableError, Worker


def bury(queue: BlockingQueue, url: str, count: int) -> None:
    """Let *count* jobs die. In a thread: the browser's driver has the loop of this one."""

    async def fail(job: Job) -> None:
        raise UnrecoverableError(f"no such card {job.data}")

    async def run() -> None:
        worker = Worker(queue.name, fail, redis_url=url)
        running = asyncio.create_task(worker.run())
        while worker.stats.buried < count:  # noqa: ASYNC110  (counts ring no bell)
            await asyncio.sleep(0.01)
        await worker.close()
        await running

    queue.add_bulk([{"name": "charge", "data": n} for n in range(count)])
    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    thread.join()
