"""`add_unique` reports whether it added the job."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui import Queue
from tambomq.chasqui.ops.add import Policy, add_once, draft, schedule
from tests.chasqui.conftest import Connect, OpenQueue

HOUR_MS = 3_600_000


@pytest.mark.parametrize("options", [{}, {"dedup": "strict"}, {"journal": True}])
@pytest.mark.parametrize("delay_ms", [None, HOUR_MS])
def test_the_second_of_an_id_is_not_added(
    connect: Connect, options: dict[str, Any], delay_ms: int | None
) -> None:
    queue = connect(**options)
    added = [queue.add_unique("n", n, job_id="a", delay_ms=delay_ms).added for n in range(3)]
    assert added == [True, False, False]
    assert queue.add_unique("n", 1, job_id="b", delay_ms=delay_ms).added is True
    counts = queue.get_job_counts()
    assert counts.waiting + counts.delayed == 2


def test_a_plain_add_leaves_added_unset(connect: Connect) -> None:
    queue = connect()
    assert queue.add("n", 1).added is None
    assert queue.add("n", 1, job_id="a").added is None
    every = {"kind": "every", "interval_ms": 5000}
    assert queue.add_unique("n", 1, job_id="a", repeat=every).added is None


def test_other_producers_count_where_ids_are_strict(connect: Connect) -> None:
    one, two = connect(dedup="strict"), connect(dedup="strict")
    assert one.add_unique("n", 1, job_id="a").added is True
    assert two.add_unique("n", 2, job_id="a").added is False


@pytest.mark.parametrize("options", [{}, {"throttle_s": 60}, {"delay_ms": HOUR_MS}])
def test_the_same_data_in_the_same_millisecond_is_not_added_twice(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    for module in ("queue", "blocking_queue"):
        monkeypatch.setattr(f"tambomq.chasqui.{module}.now_ms", lambda: 1_800_000_000_000)
    one, two = connect(dedup="strict"), connect(dedup="strict")
    assert one.add_unique("n", 1, job_id="a", **options).added is True
    assert two.add_unique("n", 1, job_id="a", **options).added is False


@pytest.mark.parametrize("delay_ms", [None, HOUR_MS])
async def test_a_call_that_is_repeated_after_a_lost_reply_says_the_same(
    queue: Queue, open_queue: OpenQueue, delay_ms: int | None
) -> None:
    policy, keys = Policy(dedup="strict"), queue._keys
    run_at_ms = None if delay_ms is None else 1_800_000_000_000 + delay_ms
    job = draft(policy, 1_800_000_000_000, "n", b"\x01", job_id="a", run_at_ms=run_at_ms)
    call: Any = (
        add_once(keys, policy, job) if run_at_ms is None else schedule(keys, policy, "p", job)
    )
    first, again = [await queue._server.run(call) for _ in range(2)]
    assert (type(first), first) == (type(again), again)
    other = await open_queue(dedup="strict").add_unique("n", 2, job_id="a", delay_ms=delay_ms)
    assert other.added is False
