"""Fills a queue: jobs for now and for later, one that counts once, one that recurs.

Start a server with `make run`, then run this file. REDIS_URL names another server.
`chasqui_worker.py` runs what is left in the queue.
"""

from __future__ import annotations

import os
from datetime import timedelta

from tambomq.chasqui import BackoffSpec, BlockingQueue, RepeatPattern
from tambomq.errors import QueueFull

QUEUE = "example-mail"


def main(url: str) -> None:
    with BlockingQueue(QUEUE, redis_url=url, max_stream_len=10_000) as queue:
        # What an earlier run of this file left behind.
        queue.obliterate(force=True)

        queue.add("welcome", {"to": "ada@example.com"})
        queue.add_bulk([{"name": "newsletter", "data": {"to": n}} for n in range(3)])

        # How often it is tried, and how long it waits in between, is the job's own affair.
        queue.add("flaky", {"to": "bob@example.com"}, attempts=3, backoff=BackoffSpec.fixed(20))
        queue.add("broken", {"to": "eve@example.com"}, attempts=2, backoff=20)
        queue.add("nonsense", {"to": None})

        # Later: after a while, or at a time. Who names an id can take the job back.
        queue.add("reminder", {"to": "ada@example.com"}, delay=timedelta(milliseconds=200))
        queue.add("reminder", {"to": "bob@example.com"}, delay_ms=3_600_000, job_id="reminder-7")
        print("taken back:", queue.cancel_delayed("reminder-7"))

        # The same id again is the same job.
        for _ in range(2):
            queue.add_unique("invoice", {"order": 7}, job_id="invoice-7")

        nightly = RepeatPattern.cron("30 4 * * *", tz="Europe/Berlin")
        spec = queue.add("report", {}, repeat=nightly)
        print("recurs as", spec.id)
        queue.remove_repeatable_by_key(spec.id)

        counts = queue.get_job_counts()
        print("waiting", counts.waiting, "delayed", counts.delayed, "recurring", counts.repeatable)

    # A queue that is full says so, instead of losing its oldest jobs.
    with BlockingQueue(QUEUE, redis_url=url, max_stream_len=counts.waiting) as full:
        try:
            full.add("welcome", {"to": "one too many"})
        except QueueFull as error:
            print("refused at", error.cap)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
