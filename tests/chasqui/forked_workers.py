"""Workers in processes that were forked from one `Worker` object. Run by ``python -m``.

A handler pushes the job it runs to the list ``begun``, and waits for the key ``go``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

import redis

from tambomq.chasqui import Job, Worker
from tests.servers import eventually


def main() -> None:
    url, queue, count = sys.argv[1:]

    def handler(job: Job) -> None:
        with redis.Redis.from_url(url) as db:
            db.rpush("begun", str(job.data))
            eventually(lambda: db.exists("go"), within_s=60)

    worker = Worker(queue, handler, redis_url=url, concurrency=10)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=worker.run_forever, daemon=True) for _ in range(int(count))]
    for child in children:
        child.start()
    # The test holds the other end, and the kernel closes it however the test ends.
    sys.stdin.read()
    for child in children:
        child.kill()
    os._exit(0)


@contextmanager
def forked_workers(url: str, queue: str, count: int) -> Iterator[None]:
    """Run so many processes, forked from one worker, inside the block."""
    command = [sys.executable, "-m", __name__, url, queue, str(count)]
    with Popen(command, stdin=PIPE) as process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        try:
            yield
        finally:
            process.communicate()
            guard.cancel()


if __name__ == "__main__":
    main()
