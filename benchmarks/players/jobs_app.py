"""The modules that ``tambo work`` runs in benchmarks: jobs that count their runs, in a file."""

from __future__ import annotations

import os
import time

from benchmarks.players import tally
from tambomq.jobs import Jobs

BURN_S = 0.001

_count = tally.counter()
bench = Jobs(os.environ[tally.QUEUE], redis_url=os.environ[tally.URL])


@bench.job
async def job(order: int, customer: str, items: list[str], note: str, paid: bool) -> None:  # noqa: ARG001  (as the others have it)
    """Do nothing."""
    _count()


@bench.job
async def burn(order: int, customer: str, items: list[str], note: str, paid: bool) -> None:  # noqa: ARG001  (as the others have it; it is to block)
    """Take a millisecond of the processor."""
    until_s = time.thread_time() + BURN_S
    while time.thread_time() < until_s:
        pass
    _count()
