"""The prefetch window: free runners, a few jobs ahead of fast handlers, none ahead of slow ones."""

from __future__ import annotations

import asyncio

import pytest

from tambomq.chasqui.worker import prefetch
from tambomq.chasqui.worker.prefetch import (
    AHEAD_S,
    MAX_AHEAD,
    MAX_UNSETTLED,
    STALLED_AFTER_S,
    PrefetchWindow,
)


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(prefetch, "time", clock)
    return clock


def size(window: PrefetchWindow, queued: int = 0, running: int = 0, unsettled: int = 0) -> int:
    return window.size(queued=queued, running=running, in_flight=queued + running + unsettled)


def finish(window: PrefetchWindow, clock: Clock, runs: int, in_s: float) -> None:
    for _ in range(runs):
        window.on_finished()
    clock.now += in_s


def test_before_anything_has_run_there_is_one_entry_for_each_free_runner(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=600)
    assert size(window) == 10
    assert size(window, running=4) == 6
    assert size(window, running=10) == 0


def test_one_read_asks_for_no_more_than_its_maximum(clock: Clock) -> None:
    assert size(PrefetchWindow(concurrency=100, max_count=7)) == 7


def test_fast_handlers_get_what_they_will_finish_in_a_moment(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=600)
    finish(window, clock, runs=2000, in_s=1.0)
    assert size(window, running=10) == int(2000 * AHEAD_S)


def test_handlers_that_became_slow_get_nothing_ahead(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=600)
    finish(window, clock, runs=2000, in_s=1.0)
    assert size(window, running=10) > 0
    clock.now += 1.0
    assert size(window, running=10) == 0


def test_however_fast_handlers_are_only_so_many_jobs_are_fetched_ahead(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=10_000)
    finish(window, clock, runs=200_000, in_s=1.0)
    assert size(window) == 10 + MAX_AHEAD


def test_a_read_waits_until_half_the_window_is_free_unless_a_runner_is(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=600)
    finish(window, clock, runs=2000, in_s=1.0)
    assert size(window, queued=10, running=10) == 0
    assert size(window, queued=5, running=10) == 15


def test_nothing_is_fetched_while_too_many_jobs_are_not_settled(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=10, max_count=600)
    assert size(window, unsettled=MAX_UNSETTLED - 3) == 3
    assert size(window, unsettled=MAX_UNSETTLED + 1) == 0


def test_handlers_are_stalled_when_none_has_finished_for_a_while(clock: Clock) -> None:
    window = PrefetchWindow(concurrency=1, max_count=1)
    clock.now += STALLED_AFTER_S * 2
    assert window.is_stalled
    window.on_finished()
    assert not window.is_stalled


@pytest.mark.parametrize("how", ["on_finished", "wake"])
async def test_only_events_after_the_wait_began_wake_the_fetcher(how: str) -> None:
    window = PrefetchWindow(concurrency=1, max_count=1)
    window.wake()
    waiting = asyncio.ensure_future(window.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    getattr(window, how)()
    await asyncio.wait_for(waiting, 60)
