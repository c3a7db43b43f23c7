"""A worker with retries and dead letters. It ends by itself when every message is settled.

Start a server with `make run`, then run this file. REDIS_URL names another server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter

from tambomq.errors import QueueExists
from tambomq.rsmq import AsyncRsmq, Backoff, Message, Reject, RsmqWorker

QUEUE = "example-work"
DEAD = f"{QUEUE}-dead"

seen: Counter[str] = Counter()


async def handle(message: Message) -> None:
    """Succeed, fail at first, fail always, or give up at once: as the body says."""
    seen[message.text] += 1
    if message.text == "shaky" and message.rc == 1:
        raise ConnectionError("not yet")
    if message.text == "broken":
        raise ValueError("it never works")
    if message.text == "nonsense":
        raise Reject("nobody understands this")


async def until_settled(worker: RsmqWorker, count: int) -> None:
    while worker.stats.done + worker.stats.buried < count:  # noqa: ASYNC110  (counts ring no bell)
        await asyncio.sleep(0.02)
    worker.stop()


async def main(url: str) -> None:
    async with AsyncRsmq(url) as rsmq:
        for queue in (QUEUE, DEAD):
            try:
                await rsmq.create_queue(queue)
            except QueueExists:
                await rsmq.purge_queue(queue)
        await rsmq.send_messages(QUEUE, ["fine", "shaky", "broken", "nonsense"])

        worker = RsmqWorker(
            QUEUE,
            handle,
            url=url,
            concurrency=4,
            max_receives=3,
            backoff=Backoff(first_s=0.05),
        )
        await asyncio.gather(worker.run(), until_settled(worker, 4))

        for text, times in sorted(seen.items()):
            print(f"{text}: handled {times} times")
        print("done", worker.stats.done, "dead", worker.stats.buried)
        for dead in sorted(await rsmq.peek_messages(DEAD), key=lambda message: message.text):
            print(f"{dead.text} is dead: {dead.reason}")

        for queue in (QUEUE, DEAD):
            await rsmq.delete_queue(queue)
        print("done")


if __name__ == "__main__":
    # The failures are the point here; a real worker shows its warnings.
    logging.getLogger("tambomq").setLevel(logging.CRITICAL)
    asyncio.run(main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")))
