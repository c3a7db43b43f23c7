"""Waits for what a handler returns, from a thread: told by events, earlier ones among them."""

from __future__ import annotations

import time
from typing import Any

from tambomq.chasqui import dlq_ops, event_ops, ops
from tambomq.chasqui.ends import PAGE, End, Ends, first_look, second_look
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.waiting import (
    BLOCK_MS,
    LOOK_EVERY_S,
    RESULT_LAG_S,
    check_wait,
    failed_job,
)
from tambomq.clock import Deadline
from tambomq.store.sync import Store


def wait_for_result(
    store: Store, keys: Keys, job_id: str, *, timeout: float, poll_interval: float
) -> Any:
    """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
    check_wait(timeout, poll_interval)
    deadline, tick, result = Deadline(timeout), Deadline(LOOK_EVERY_S), ops.result(keys, job_id)
    if (value := store.run(result)) is not None:
        return value
    ends, stale, look = Ends(), "", first_look(job_id)
    ends.begin(store.run(event_ops.last_id(keys)))
    store.follow(event_ops.look_back(keys, ends, look))
    while True:
        end = ends.of(job_id)
        if end is not None and end.event_id != stale:
            if (value := store.run(result)) is not None:
                return value
            if store.follow(event_ops.is_over(keys, ends, job_id, end)):
                return _settled(store, keys, job_id, end, poll_interval)
            stale = end.event_id
            continue
        if deadline.passed:
            raise TimeoutError(f"no result of job {job_id!r} within {timeout} s")
        block_ms = max(1, min(BLOCK_MS, int(deadline.left_s * 1000)))
        page = store.run(event_ops.read(keys, ends.newest, PAGE, block_ms))
        ends.append(ends.newest, page)
        ends.forget_most((job_id,))
        if tick.passed or deadline.passed:
            tick = Deadline(LOOK_EVERY_S)
            if (value := store.run(result)) is not None:
                return value
            if look != (look := second_look(job_id)):
                store.follow(event_ops.look_back(keys, ends, look))


def _settled(store: Store, keys: Keys, job_id: str, end: End, poll_s: float) -> Any:
    """The result of a job that has ended; `None` if it returned nothing."""
    lag = Deadline(RESULT_LAG_S)
    while (value := store.run(ops.result(keys, job_id))) is None:
        if end.reason is not None:
            plan = dlq_ops.buried_at(keys, job_id, end.event_id)
            letter = store.follow(plan)
            raise failed_job(keys.queue, job_id, end.reason, letter)
        if lag.passed:
            break
        time.sleep(min(poll_s, RESULT_LAG_S / 10))
    return value
