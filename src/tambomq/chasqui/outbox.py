"""Tells the server what became of jobs, many at a time.

What comes up in one turn of the loop leaves together. A server that cannot be
reached is told when it is back; until then the jobs stay held, so that nobody
runs them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from tambomq.chasqui import worker_ops
from tambomq.chasqui.hand import Hand
from tambomq.chasqui.worker_ops import Seat
from tambomq.clock import now_ms, pauses
from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Arg, Call, Outcome

log = logging.getLogger(__name__)

# A script with so many jobs takes about a millisecond.
MOST_JOBS = 256
# More trips at a time only make each smaller.
MOST_TRIPS = 2

_BEGUN, _ENDED = 3, 5
"""How many arguments of `settle` a job has that begins, and one that ended."""


class WorkerStats(msgspec.Struct):
    """What a worker has done so far."""

    received: int = 0
    completed: int = 0
    failed: int = 0
    """Handlers that raised."""
    retried: int = 0
    buried: int = 0
    """Moved to the dead-letter queue."""
    returned: int = 0
    """Given back without a run."""
    lost: int = 0
    """Ended here, but by then in another's hands, or gone."""


class Parcel(msgspec.Struct, frozen=True):
    """A call that settles one job."""

    entry: str
    call: Call[Any]
    counter: str
    """What to count it as, if it does."""
    instead: Callable[[], Call[Any]] | None = None
    """Makes the call to try next, if the server answers with text: why this one will not do."""


class Load(msgspec.Struct, frozen=True):
    """What is told in one trip: the calls, and what they settle."""

    calls: list[Call[Any]]
    ended: list[str]
    """Entries that the first call ends."""
    parcels: list[Parcel]
    """Entries that the other calls settle, one each."""


class Outbox:
    """Settles the jobs of one worker."""

    def __init__(self, store: AsyncStore, seat: Seat, hand: Hand, stats: WorkerStats) -> None:
        """Let what is settled go out of *hand*, and count it into *stats*."""
        self._store, self._seat, self._hand, self._stats = store, seat, hand, stats
        self._loop = asyncio.get_running_loop()
        self._begun: list[Arg] = []
        self._ended: list[Arg] = []
        self._parcels: list[Parcel] = []
        self._trips: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._wants_events = seat.events_cap > 0
        self.unsettled = 0
        """Jobs that have ended and of which the server does not know yet."""

    def begin(self, id: str, name: str, attempt: int) -> None:
        """Tell, soon, that a job begins to run."""
        if self._wants_events:
            self._begun += (id, name, attempt)
            self._soon()

    def end(self, entry: str, id: str, name: str, attempt: int, duration_us: int) -> None:
        """End, soon, a job whose handler returned."""
        self._ended += (entry, id, name, attempt, duration_us)
        self.unsettled += 1
        self._soon()

    def post(self, parcel: Parcel) -> None:
        """Settle a job, soon, by a call of its own."""
        self._parcels.append(parcel)
        self.unsettled += 1
        self._soon()

    async def drain(self) -> None:
        """Return when the server knows everything."""
        while self._trips or self._begun or self._ended or self._parcels:
            self._flush()
            await asyncio.wait(self._trips)

    def cancel(self) -> None:
        """Tell no more."""
        for trip in self._trips:
            trip.cancel()

    def _soon(self) -> None:
        if not self._flushing and len(self._trips) < MOST_TRIPS:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while len(self._trips) < MOST_TRIPS and (load := self._load()) is not None:
            trip = self._loop.create_task(self._tell(load))
            self._trips.add(trip)
            trip.add_done_callback(self._told)

    def _load(self) -> Load | None:
        """What leaves with the next trip; `None` if there is nothing."""
        begun, self._begun = _split(self._begun, _BEGUN)
        ended, parcels = list[Arg](), list[Parcel]()
        # While some have to wait with telling that they begin, none may tell that they end.
        if not self._begun:
            ended, self._ended = _split(self._ended, _ENDED)
            parcels, self._parcels = self._parcels[:MOST_JOBS], self._parcels[MOST_JOBS:]
        if not (begun or ended or parcels):
            return None
        calls = [parcel.call for parcel in parcels]
        if begun or ended:
            calls.insert(0, worker_ops.settle(self._seat, now_ms(), begun, ended))
        return Load(calls, [str(entry) for entry in ended[::_ENDED]], parcels)

    def _told(self, trip: asyncio.Task[None]) -> None:
        self._trips.discard(trip)
        if not trip.cancelled() and (error := trip.exception()):
            log.error("cannot settle jobs of %r", self._seat.keys.queue, exc_info=error)
        self._flush()

    async def _tell(self, load: Load) -> None:
        outcomes = await self._store.outcomes(load.calls)
        outcomes = await self._until_told(load.calls, outcomes)
        if len(outcomes) > len(load.parcels):
            self._count_ended(len(load.ended), outcomes.pop(0))
        again = self._count(load.parcels, outcomes)
        self.unsettled -= len(load.ended) + len(load.parcels)
        parcels = (parcel.entry for parcel in load.parcels if parcel.entry not in again)
        self._hand.let_go((*load.ended, *parcels))

    async def _until_told(self, calls: list[Call[Any]], outcomes: list[Outcome]) -> list[Outcome]:
        """Make *calls* again as long as they find no server."""
        wait = pauses()
        while any(isinstance(o, StoreUnavailable | StoreRefused) for o in outcomes):
            log.warning("cannot settle jobs of %r yet", self._seat.keys.queue)
            await asyncio.sleep(next(wait))
            again = await self._store.outcomes(calls)
            # What was done the first time finds its own work the second: keep the first answer.
            outcomes = [
                new if isinstance(old, StoreUnavailable | StoreRefused) else old
                for old, new in zip(outcomes, again, strict=True)
            ]
        return outcomes

    def _count_ended(self, jobs: int, outcome: Outcome) -> None:
        if isinstance(outcome, TamboError):
            log.error("cannot settle %d jobs: %s", jobs, outcome)
        lost = jobs if isinstance(outcome, TamboError) else len(outcome)
        self._stats.completed += jobs - lost
        self._count_lost(lost)

    def _count(self, parcels: list[Parcel], outcomes: list[Outcome]) -> set[str]:
        """Count what was done; return entries that are to be settled otherwise."""
        again: set[str] = set()
        stats, lost = self._stats, 0
        for parcel, outcome in zip(parcels, outcomes, strict=True):
            if isinstance(outcome, str) and parcel.instead is not None:
                log.info("job %r is settled otherwise: %s", parcel.entry, outcome)
                self.post(Parcel(parcel.entry, parcel.instead(), parcel.counter))
                again.add(parcel.entry)
            elif isinstance(outcome, TamboError) or not outcome:
                lost += 1
                if isinstance(outcome, TamboError):
                    log.error("cannot settle a job: %s", outcome)
            else:
                setattr(stats, parcel.counter, getattr(stats, parcel.counter) + 1)
        self._count_lost(lost)
        return again

    def _count_lost(self, lost: int) -> None:
        if lost:
            self._stats.lost += lost
            log.warning("%d jobs of %r were lost while they ran", lost, self._seat.keys.queue)


def _split(flat: list[Arg], each: int) -> tuple[list[Arg], list[Arg]]:
    most = MOST_JOBS * each
    return (flat, []) if len(flat) <= most else (flat[:most], flat[most:])
