"""Workers and leaders in processes of their own, for tests that stop or kill them.

Run by ``python -m``, with options in JSON. Handlers record their runs in Redis: the lists ``begun``
and ``ended`` hold ``<consumer> <id> <attempt>``, the hash ``stats`` the counters of each worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis

from tambomq.chasqui import Job, UnrecoverableError, Worker
from tambomq.chasqui.leader.promoter import Promoter
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.store.aio import AsyncStore
from tests.chasqui.faults import KEYS, QUEUE
from tests.servers import eventually_async


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    url, consumer, ttl_s = options.pop("url"), options.pop("consumer"), options.pop("ttl_s")
    if ttl_s:
        asyncio.run(lead(url, consumer, ttl_s))
    else:
        work(url, consumer, **options)


async def lead(url: str, consumer: str, ttl_s: int) -> None:
    """Promote and schedule, as *consumer*."""
    store, config = AsyncStore(url), LeaderConfig(KEYS, f"{CONSUMER_PREFIX}{consumer}", ttl_s)
    await asyncio.gather(Promoter(store, config).run(), Scheduler(store, config, 50).run())


def work(
    url: str,
    consumer: str,
    *,
    die: bool = False,
    hold: str = "",
    takes_s: float = 0,
    **options: Any,
) -> None:
    """Work as *consumer*; *hold* names a key without which no handler ends."""
    db = redis.Redis.from_url(url)

    async def handler(job: Job) -> str | None:
        line = f"{consumer} {job.id} {job.attempt}"
        db.rpush("begun", line)
        if die:
            os._exit(1)
        if hold:
            await eventually_async(lambda: db.exists(hold), within_s=60)
        await asyncio.sleep(takes_s)
        db.rpush("ended", line)
        if job.name == "flaky":
            raise ValueError(f"{consumer} gives up")
        if job.name == "doomed":
            raise UnrecoverableError(f"{consumer} refuses")
        return consumer if job.name == "result" else None

    worker = Worker(QUEUE, handler, redis_url=url, consumer_id=consumer, **options)
    threading.Thread(target=_publish_stats, args=(url, consumer, worker), daemon=True).start()
    worker.run_forever()


def _publish_stats(url: str, consumer: str, worker: Worker) -> None:
    db = redis.Redis.from_url(url)
    while True:
        db.hset("stats", consumer, msgspec.json.encode(worker.stats))
        time.sleep(0.05)


def _end_with_parent() -> None:
    # The test holds the other end, and the kernel closes it however the test ends.
    sys.stdin.read()
    os._exit(0)


@contextmanager
def worker_process(
    url: str, consumer: str, *, ttl_s: int = 0, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker, or with *ttl_s* leaders; it is killed when the block ends."""
    arguments = json.dumps({"url": url, "consumer": consumer, "ttl_s": ttl_s, **options})
    command = [sys.executable, "-m", __name__, arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    main()
