"""What became of jobs is told in few trips, in order, and until the server knows. No server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from tambomq.chasqui.hand import Hand, Lease
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.outbox import MOST_JOBS, MOST_TRIPS, Outbox, Parcel, WorkerStats
from tambomq.chasqui.worker_ops import Delivery, Seat
from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome, Script
from tambomq.store.connect import endpoint
from tests.servers import eventually_async


class Server:
    """Answers as a store would, when it may."""

    def __init__(self) -> None:
        self.trips: list[list[Call[Any]]] = []
        self.under_way = self.most_under_way = 0
        self.answers: list[Callable[[Call[Any]], Outcome]] = []
        """For the next trips; then each call is done."""
        self.open = asyncio.Event()
        self.open.set()

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        self.trips.append(list(calls))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.open.wait()
        await asyncio.sleep(0)
        self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else well
        return [answer(call) for call in calls]


def well(call: Call[Any]) -> Outcome:
    return [] if is_settle(call) else True


def gone(_: Call[Any]) -> Outcome:
    return StoreUnavailable("gone")


def is_settle(call: Call[Any]) -> bool:
    return isinstance(call.verb, Script) and call.verb.name == "settle"


class Desk:
    """An outbox, and all that it speaks with."""

    def __init__(self, events_cap: int = 1000) -> None:
        self.server, self.stats = Server(), WorkerStats()
        seat = Seat(Keys("q"), "default", "me", events_cap=events_cap)
        lease = Lease(endpoint("redis://127.0.0.1:1"), "q", "default", "me", 30_000)
        self.hand = Hand(None, lease)
        store = cast("AsyncStore", self.server)
        self.outbox = Outbox(store, seat, self.hand, self.stats)

    def gone_and_silent(self, call: Call[Any]) -> Outcome:
        """Not there; and the next trip is not answered before `Server.open` is set."""
        self.server.open.clear()
        return gone(call)

    def hold(self, *entries: str) -> None:
        self.hand.take([Delivery(entry, (), 0) for entry in entries])

    def parcel(self, entry: str, **more: Any) -> Parcel:
        self.hold(entry)
        return Parcel(entry, Call("PING", (), (entry,), bool), "retried", **more)

    def end(self, *entries: str) -> None:
        self.hold(*entries)
        for entry in entries:
            self.outbox.end(entry, f"job {entry}", "", 1, 5)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    made.outbox.cancel()


async def test_what_comes_up_in_one_turn_leaves_together(desk: Desk) -> None:
    for n in range(10):
        desk.outbox.begin(f"job {n}", "", 1)
        desk.end(str(n))
    await desk.outbox.drain()
    assert [len(calls) for calls in desk.server.trips] == [1]
    assert (desk.stats.completed, desk.stats.lost, desk.hand.held) == (10, 0, {})


async def test_it_is_told_without_being_asked(desk: Desk) -> None:
    desk.end("1")
    await eventually_async(lambda: desk.stats.completed == 1)
    assert desk.outbox.unsettled == 0


async def test_a_script_has_only_so_many_jobs(desk: Desk) -> None:
    desk.end(*map(str, range(MOST_JOBS * 3 + 1)))
    await desk.outbox.drain()
    assert len(desk.server.trips) == 4
    assert desk.stats.completed == MOST_JOBS * 3 + 1


async def test_only_so_many_trips_are_under_way_at_once(desk: Desk) -> None:
    desk.server.open.clear()
    for n in range(20):
        desk.end(str(n))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(desk.server.trips) == MOST_TRIPS
    desk.server.open.set()
    await desk.outbox.drain()
    assert desk.server.most_under_way == MOST_TRIPS
    # What came up meanwhile left together.
    assert len(desk.server.trips) == MOST_TRIPS + 1
    assert desk.stats.completed == 20


async def test_no_job_is_told_to_end_before_all_that_began_are_told(desk: Desk) -> None:
    for n in range(MOST_JOBS * 2 + 1):
        desk.outbox.begin(f"job {n}", "", 1)
    desk.end("1")
    desk.outbox.post(desk.parcel("2"))
    await desk.outbox.drain()
    assert [len(calls) for calls in desk.server.trips] == [1, 1, 2]
    ends = [calls for calls in desk.server.trips if any("job 1" in c.args[-5:] for c in calls)]
    assert ends == desk.server.trips[-1:]


async def test_without_events_nobody_is_told_that_a_job_begins() -> None:
    desk = Desk(events_cap=0)
    desk.outbox.begin("job 1", "", 1)
    await desk.outbox.drain()
    assert desk.server.trips == []


async def test_a_server_that_is_gone_is_told_when_it_is_back_and_jobs_stay_held(desk: Desk) -> None:
    desk.server.answers = [gone, desk.gone_and_silent]
    desk.end("1")
    desk.outbox.post(desk.parcel("2"))
    await eventually_async(lambda: len(desk.server.trips) == 3)
    assert set(desk.hand.held) == {"1", "2"}
    assert desk.outbox.unsettled == 2
    desk.server.open.set()
    await desk.outbox.drain()
    assert (desk.stats.completed, desk.stats.retried, desk.stats.lost) == (1, 1, 0)
    assert desk.hand.held == {}


async def test_the_first_answer_counts_where_a_call_is_made_again(desk: Desk) -> None:
    # The parcel was settled at once; made again, its call finds nothing to do.
    desk.server.answers = [
        lambda call: gone(call) if is_settle(call) else True,
        lambda call: well(call) if is_settle(call) else False,
    ]
    desk.end("1")
    desk.outbox.post(desk.parcel("2"))
    await desk.outbox.drain()
    assert (desk.stats.completed, desk.stats.retried, desk.stats.lost) == (1, 1, 0)


async def test_what_was_anothers_by_then_is_lost(desk: Desk) -> None:
    desk.server.answers = [lambda call: ["2", "3"] if is_settle(call) else False]
    desk.end("1", "2", "3")
    desk.outbox.post(desk.parcel("4"))
    await desk.outbox.drain()
    assert (desk.stats.completed, desk.stats.retried, desk.stats.lost) == (1, 0, 3)
    assert desk.hand.held == {}


async def test_an_error_of_the_server_loses_its_jobs_and_no_others(desk: Desk) -> None:
    desk.server.answers = [lambda call: StoreError("no") if is_settle(call) else True]
    desk.end("1", "2")
    desk.outbox.post(desk.parcel("3"))
    await desk.outbox.drain()
    assert (desk.stats.completed, desk.stats.retried, desk.stats.lost) == (0, 1, 2)
    desk.end("4")
    await desk.outbox.drain()
    assert desk.stats.completed == 1


async def test_a_call_that_will_not_do_is_replaced(desk: Desk) -> None:
    instead = Call("PING", (), ("instead",), bool)
    desk.server.answers = [lambda _: "another leads"]
    desk.outbox.post(desk.parcel("1", instead=lambda: instead))
    await desk.outbox.drain()
    assert desk.server.trips[1] == [instead]
    assert (desk.stats.retried, desk.stats.lost, desk.hand.held) == (1, 0, {})


async def test_a_call_that_is_being_replaced_keeps_its_job_held(desk: Desk) -> None:
    desk.server.answers = [lambda _: "another leads", desk.gone_and_silent]
    desk.outbox.post(desk.parcel("1", instead=lambda: Call("PING", (), (), bool)))
    await eventually_async(lambda: len(desk.server.trips) == 3)
    assert (set(desk.hand.held), desk.outbox.unsettled) == ({"1"}, 1)
    desk.server.open.set()
    await desk.outbox.drain()
    assert desk.outbox.unsettled == 0


async def test_nothing_to_tell_is_told_at_once(desk: Desk) -> None:
    await asyncio.wait_for(desk.outbox.drain(), 5)
    assert desk.server.trips == []


async def test_what_is_cancelled_is_told_no_more(desk: Desk) -> None:
    desk.server.open.clear()
    desk.end("1")
    await eventually_async(lambda: len(desk.server.trips) == 1)
    desk.outbox.cancel()
    await asyncio.wait_for(desk.outbox.drain(), 5)
    assert (desk.stats.completed, set(desk.hand.held)) == (0, {"1"})
