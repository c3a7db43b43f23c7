"""Waits for what a handler returns, from a thread: told by events."""

from __future__ import annotations

import time
from typing import Any

from tambomq.chasqui import event_ops, ops
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.waiting import BLOCK_MS, RESULT_LAG_S, check_wait, verdict
from tambomq.clock import Deadline
from tambomq.store.sync import Store


def wait_for_result(
    store: Store, keys: Keys, job_id: str, *, timeout: float, poll_interval: float
) -> Any:
    """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
    check_wait(timeout, poll_interval)
    deadline, after = Deadline(timeout), store.run(event_ops.last_id(keys))
    while True:
        if (value := store.run(ops.result(keys, job_id))) is not None:
            return value
        if deadline.passed:
            raise TimeoutError(f"no result of job {job_id!r} within {timeout} s")
        block_ms = max(1, min(BLOCK_MS, int(deadline.left_s * 1000)))
        for event in store.run(event_ops.read(keys, after, 1000, block_ms)):
            after = event.event_id
            if event.job_id != job_id or event.name not in ("completed", "dlq"):
                continue
            if (failed := verdict(keys.queue, event)) is not None:
                raise failed
            return _soon(store, keys, job_id, poll_interval)


def _soon(store: Store, keys: Keys, job_id: str, poll_s: float) -> Any:
    """The result of a job that has completed; `None` if it returned nothing."""
    lag = Deadline(RESULT_LAG_S)
    while (value := store.run(ops.result(keys, job_id))) is None and not lag.passed:
        time.sleep(min(poll_s, RESULT_LAG_S / 10))
    return value
