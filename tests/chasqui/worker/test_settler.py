"""The settler reports ends of jobs in few round trips, in order, until confirmed. No server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.chasqui.worker.in_flight import EntryLease, InFlight
from tambomq.chasqui.worker.observed_runs import ObservedRuns, Run
from tambomq.chasqui.worker.settlement import Settlement, WorkerStats
from tambomq.chasqui.worker.settler import (
    MAX_BATCH_JOBS,
    MAX_ROUND_TRIPS,
    Settler,
)
from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome, Script
from tambomq.store.endpoint import endpoint
from tests.runtime.test_observer import Recorder
from tests.servers import eventually_async


class StubStore:
    """Replies as a store would, once `open` is set. It is no Redis: calls are only recorded."""

    def __init__(self) -> None:
        self.round_trips: list[list[Call[Any]]] = []
        self.under_way = self.max_under_way = 0
        self.replies: list[Callable[[Call[Any]], Outcome]] = []
        """Replies to the next round trips; after them every call succeeds."""
        self.open = asyncio.Event()
        self.open.set()

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        self.round_trips.append(list(calls))
        self.under_way += 1
        self.max_under_way = max(self.max_under_way, self.under_way)
        await self.open.wait()
        await asyncio.sleep(0)
        self.under_way -= 1
        reply = self.replies.pop(0) if self.replies else succeed
        return [reply(call) for call in calls]


def succeed(call: Call[Any]) -> Outcome:
    return [] if is_settle(call) else True


def unreachable(_: Call[Any]) -> Outcome:
    return StoreUnavailable("gone")


def is_settle(call: Call[Any]) -> bool:
    return isinstance(call.verb, Script) and call.verb.name == "settle"


class SettlerHarness:
    """A settler with a stub store and real entries in flight."""

    def __init__(self, events_cap: int = 1000) -> None:
        self.store, self.stats = StubStore(), WorkerStats()
        context = ConsumerContext(Keys("q"), "default", "me", events_cap=events_cap)
        lease = EntryLease(endpoint("redis://127.0.0.1:1"), "q", "default", "me", 30_000)
        self.in_flight = InFlight(lease, None, on_released=lambda: None)
        store = cast("AsyncStore", self.store)
        self.recorder, self.cancelled = Recorder(), dict[str, str]()
        self.runs = ObservedRuns(self.recorder, "q")
        self.settler = Settler(
            store, context, self.in_flight, self.stats, self.cancelled_among, self.runs
        )

    async def cancelled_among(self, lost: list[str]) -> dict[str, str]:
        return {entry: self.cancelled[entry] for entry in lost if entry in self.cancelled}

    def unreachable_then_silent(self, call: Call[Any]) -> Outcome:
        """Fail; and let the next round trip wait until `StubStore.open` is set."""
        self.store.open.clear()
        return unreachable(call)

    def hold(self, *entries: str) -> None:
        self.in_flight.add([Delivery(entry, (), 0) for entry in entries])

    def settlement(self, entry: str, **more: Any) -> Settlement:
        self.hold(entry)
        return Settlement(entry, Call("PING", (), (entry,), bool), "retried", **more)

    def end(self, *entries: str) -> None:
        self.hold(*entries)
        for entry in entries:
            run = Run(entry, Envelope(f"job {entry}", b"", 0), "", 0)
            self.runs.hold(run, "completed", 5)
            self.settler.completed(entry, f"job {entry}", "", 1, 5)


@pytest.fixture
async def harness() -> AsyncIterator[SettlerHarness]:
    made = SettlerHarness()
    yield made
    made.settler.cancel()


async def test_settlements_of_one_loop_turn_share_a_round_trip(harness: SettlerHarness) -> None:
    for n in range(10):
        harness.settler.started(f"job {n}", "", 1)
        harness.end(str(n))
    await harness.settler.drain()
    assert [len(calls) for calls in harness.store.round_trips] == [1]
    assert (harness.stats.completed, harness.stats.lost, harness.in_flight.entries) == (10, 0, {})


async def test_a_settlement_is_sent_without_a_call_of_drain(harness: SettlerHarness) -> None:
    harness.end("1")
    await eventually_async(lambda: harness.stats.completed == 1)
    assert harness.settler.unsettled == 0


async def test_a_script_has_only_so_many_jobs(harness: SettlerHarness) -> None:
    harness.end(*map(str, range(MAX_BATCH_JOBS * 3 + 1)))
    await harness.settler.drain()
    assert len(harness.store.round_trips) == 4
    assert harness.stats.completed == MAX_BATCH_JOBS * 3 + 1


async def test_the_number_of_concurrent_round_trips_is_bounded(harness: SettlerHarness) -> None:
    harness.store.open.clear()
    for n in range(20):
        harness.end(str(n))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(harness.store.round_trips) == MAX_ROUND_TRIPS
    harness.store.open.set()
    await harness.settler.drain()
    assert harness.store.max_under_way == MAX_ROUND_TRIPS
    # Ends that were added meanwhile were sent together.
    assert len(harness.store.round_trips) == MAX_ROUND_TRIPS + 1
    assert harness.stats.completed == 20


async def test_settlements_are_sent_after_the_events_of_started_jobs(
    harness: SettlerHarness,
) -> None:
    for n in range(MAX_BATCH_JOBS * 2 + 1):
        harness.settler.started(f"job {n}", "", 1)
    harness.end("1")
    harness.settler.submit(harness.settlement("2"))
    await harness.settler.drain()
    assert [len(calls) for calls in harness.store.round_trips] == [1, 1, 2]
    ends = [
        calls for calls in harness.store.round_trips if any("job 1" in c.args[-5:] for c in calls)
    ]
    assert ends == harness.store.round_trips[-1:]


async def test_without_events_no_start_is_sent() -> None:
    harness = SettlerHarness(events_cap=0)
    harness.settler.started("job 1", "", 1)
    await harness.settler.drain()
    assert harness.store.round_trips == []


async def test_ends_are_sent_again_after_an_outage_and_jobs_stay_in_flight(
    harness: SettlerHarness,
) -> None:
    harness.store.replies = [unreachable, harness.unreachable_then_silent]
    harness.end("1")
    harness.settler.submit(harness.settlement("2"))
    await eventually_async(lambda: len(harness.store.round_trips) == 3)
    assert set(harness.in_flight.entries) == {"1", "2"}
    assert harness.settler.unsettled == 2
    harness.store.open.set()
    await harness.settler.drain()
    assert (harness.stats.completed, harness.stats.retried, harness.stats.lost) == (1, 1, 0)
    assert harness.in_flight.entries == {}


async def test_the_first_answer_counts_where_a_call_is_made_again(harness: SettlerHarness) -> None:
    # The parcel was settled at once; made again, its call finds nothing to do.
    harness.store.replies = [
        lambda call: unreachable(call) if is_settle(call) else True,
        lambda call: succeed(call) if is_settle(call) else False,
    ]
    harness.end("1")
    harness.settler.submit(harness.settlement("2"))
    await harness.settler.drain()
    assert (harness.stats.completed, harness.stats.retried, harness.stats.lost) == (1, 1, 0)


async def test_entries_that_another_worker_has_claimed_count_as_lost(
    harness: SettlerHarness,
) -> None:
    harness.store.replies = [lambda call: ["2", "3"] if is_settle(call) else False]
    harness.end("1", "2", "3")
    harness.settler.submit(harness.settlement("4"))
    await harness.settler.drain()
    assert (harness.stats.completed, harness.stats.retried, harness.stats.lost) == (1, 0, 3)
    assert harness.in_flight.entries == {}
    ended = {each.id: each.outcome for each in harness.recorder.ended}
    assert ended == {"job 1": "completed", "job 2": "lost", "job 3": "lost"}


async def test_a_job_cancelled_before_its_settlement_is_observed_as_cancelled(
    harness: SettlerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.cancelled = {"2": "not needed"}
    harness.store.replies = [lambda _: ["2"]]
    harness.end("1", "2")
    with caplog.at_level("INFO"):
        await harness.settler.drain()
    assert (harness.stats.completed, harness.stats.cancelled, harness.stats.lost) == (1, 1, 0)
    ended = {each.id: (each.outcome, each.error) for each in harness.recorder.ended}
    assert ended == {"job 1": ("completed", ""), "job 2": ("cancelled", "CancelJob: not needed")}
    assert "'2' of queue 'q' was cancelled" in caplog.text


async def test_nothing_is_observed_before_the_server_has_taken_it(harness: SettlerHarness) -> None:
    harness.store.open.clear()
    harness.end("1")
    await eventually_async(lambda: len(harness.store.round_trips) == 1)
    assert harness.recorder.ended == []
    harness.settler.cancel()
    harness.runs.close()
    assert [each.outcome for each in harness.recorder.ended] == ["lost"]


async def test_on_done_is_called_only_after_a_settlement_succeeded(harness: SettlerHarness) -> None:
    done: list[str] = []
    instead = Call("PING", (), ("instead",), bool)
    harness.store.replies = [
        lambda call: {"1": True, "2": False}.get(str(call.args[0]), "refused"),
    ]
    for entry in "123":
        harness.settler.submit(
            harness.settlement(
                entry, fallback=lambda: instead, on_done=lambda e=entry: done.append(e)
            )
        )
    await harness.settler.drain()
    assert done == ["1", "3"]


async def test_an_error_of_the_server_loses_its_jobs_and_no_others(harness: SettlerHarness) -> None:
    harness.store.replies = [lambda call: StoreError("no") if is_settle(call) else True]
    harness.end("1", "2")
    harness.settler.submit(harness.settlement("3"))
    await harness.settler.drain()
    assert (harness.stats.completed, harness.stats.retried, harness.stats.lost) == (0, 1, 2)
    harness.end("4")
    await harness.settler.drain()
    assert harness.stats.completed == 1


async def test_a_refused_call_is_replaced_by_its_fallback(harness: SettlerHarness) -> None:
    instead = Call("PING", (), ("instead",), bool)
    harness.store.replies = [lambda _: "another leads"]
    harness.settler.submit(harness.settlement("1", fallback=lambda: instead))
    await harness.settler.drain()
    assert harness.store.round_trips[1] == [instead]
    assert (harness.stats.retried, harness.stats.lost, harness.in_flight.entries) == (1, 0, {})


async def test_a_job_stays_in_flight_while_its_fallback_is_sent(harness: SettlerHarness) -> None:
    harness.store.replies = [lambda _: "another leads", harness.unreachable_then_silent]
    harness.settler.submit(harness.settlement("1", fallback=lambda: Call("PING", (), (), bool)))
    await eventually_async(lambda: len(harness.store.round_trips) == 3)
    assert (set(harness.in_flight.entries), harness.settler.unsettled) == ({"1"}, 1)
    harness.store.open.set()
    await harness.settler.drain()
    assert harness.settler.unsettled == 0


async def test_a_drain_without_settlements_returns_at_once(harness: SettlerHarness) -> None:
    await asyncio.wait_for(harness.settler.drain(), 60)
    assert harness.store.round_trips == []


async def test_nothing_is_sent_after_cancel(harness: SettlerHarness) -> None:
    harness.store.open.clear()
    harness.end("1")
    await eventually_async(lambda: len(harness.store.round_trips) == 1)
    harness.settler.cancel()
    await asyncio.wait_for(harness.settler.drain(), 60)
    assert (harness.stats.completed, set(harness.in_flight.entries)) == (0, {"1"})


async def test_a_cancelled_round_trip_does_not_begin_the_next(harness: SettlerHarness) -> None:
    harness.store.open.clear()
    for n in range(MAX_ROUND_TRIPS + 1):
        harness.end(str(n))
        await eventually_async(lambda: not harness.settler._flush_scheduled)
    under_way = harness.settler._round_trips.copy()
    harness.settler.cancel()
    await asyncio.wait(under_way)
    harness.end("late")
    await asyncio.sleep(0)
    assert len(harness.store.round_trips) == MAX_ROUND_TRIPS
    assert harness.settler._round_trips == set()
