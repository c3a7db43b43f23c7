"""Waiting for a result, from a thread: by events, and by reading the result now and then."""

from __future__ import annotations

import time
from typing import Any

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops.ended_jobs import (
    PAGE,
    EndedJobs,
    JobEnd,
    first_look_back,
    second_look_back,
)
from tambomq.chasqui.producer.result_wait import (
    BLOCK_MS,
    POLL_EVERY_S,
    RESULT_LAG_S,
    check_wait,
    failed_job,
)
from tambomq.clock import Deadline
from tambomq.errors import JobCancelled
from tambomq.store.sync import Store


def wait_for_result(
    store: Store, keys: Keys, job_id: str, *, timeout: float, poll_interval: float
) -> Any:
    """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
    check_wait(timeout, poll_interval)
    deadline, tick, result = Deadline(timeout), Deadline(POLL_EVERY_S), add_ops.result(keys, job_id)
    if (value := store.run(result)) is not None:
        return value
    ends, stale, look = EndedJobs(), "", first_look_back(job_id)
    ends.begin(store.run(event_ops.last_id(keys)))
    store.follow(event_ops.look_back(keys, ends, look))
    while True:
        end = ends.of(job_id)
        if end is not None and end.event_id != stale:
            if (value := store.run(result)) is not None:
                return value
            if store.follow(event_ops.is_over(keys, ends, job_id, end)):
                return _result_of(store, keys, job_id, end, poll_interval)
            stale = end.event_id
            continue
        if deadline.passed:
            raise TimeoutError(f"no result of job {job_id!r} within {timeout} s")
        block_ms = max(1, min(BLOCK_MS, int(deadline.left_s * 1000)))
        page = store.run(event_ops.read(keys, ends.newest, PAGE, block_ms))
        ends.append(ends.newest, page)
        ends.trim((job_id,))
        if tick.passed or deadline.passed:
            tick = Deadline(POLL_EVERY_S)
            if (value := store.run(result)) is not None:
                return value
            if look != (look := second_look_back(job_id)):
                store.follow(event_ops.look_back(keys, ends, look))


def _result_of(store: Store, keys: Keys, job_id: str, end: JobEnd, poll_s: float) -> Any:
    """Return the result of a job that has ended; `None` if its handler returned nothing."""
    lag = Deadline(RESULT_LAG_S)
    while (value := store.run(add_ops.result(keys, job_id))) is None:
        if end.is_cancelled:
            raise JobCancelled(keys.queue, job_id, end.reason or "")
        if end.reason is not None:
            plan = dlq_ops.buried_at(keys, job_id, end.event_id)
            letter = store.follow(plan)
            raise failed_job(keys.queue, job_id, end.reason, letter)
        if lag.passed:
            break
        time.sleep(min(poll_s, RESULT_LAG_S / 10))
    return value
