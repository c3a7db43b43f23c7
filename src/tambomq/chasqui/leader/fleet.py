"""Leads many queues from one loop, so that idle ones cost next to nothing.

Each queue has a promoter and a scheduler as tasks. They sleep until they are woken: the fleet asks
about all queues with one script per tick and 250 queues, and renews their locks the same way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from tambomq.chasqui import fleet_ops, lead_ops
from tambomq.chasqui.fleet_ops import Leadership, Renewal
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.lead_ops import CLOCKS_APART_MS, Office
from tambomq.chasqui.leader import Leader
from tambomq.chasqui.promoter import TICK_MS, Promoter
from tambomq.chasqui.scheduler import TICK_MS as SCHEDULER_TICK_MS
from tambomq.chasqui.scheduler import Scheduler
from tambomq.clock import Deadline, now_ms, pauses
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.features import is_cluster

RENEW_EVERY_S: Final = 1.0
"""How often locks are renewed, free ones taken, and new recurring jobs noticed."""
STUCK_AFTER_S: Final = 15.0
"""A turn ends with an error when the store has been away for 10 s; one that takes longer hangs."""
# A scheduler is woken for what is due before the next renewal, with time to spare.
_FIRE_WITHIN_MS: Final = SCHEDULER_TICK_MS + 500
# So many promoters take a turn with each renewal though nothing is due: they look for dead workers
# and for a released engine that has joined. A thousand queues are through in 20 s.
_TURNS_A_RENEWAL: Final = 50
# On a cluster a queue is a call of its own: so many a second are enough.
_CLUSTER_CALLS_A_S: Final = 500

log = logging.getLogger(__name__)


class _Woken(Leader):
    """A leader that sleeps until it is woken, unless it knows what it has to do next."""

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int) -> None:
        # `Promoter` and `Scheduler` take a tick where `Leader` takes a lock.
        super().__init__(store, office, tick_ms)  # type: ignore[arg-type]
        self._idle_after_s = tick_ms / 1000
        self._wakeup, self._is_idle = asyncio.Event(), False
        self._busy_since: float | None = None
        self.task = asyncio.ensure_future(self.run())

    async def turn(self) -> float:
        # Cleared first: what happens from here on wakes it once more.
        self._wakeup.clear()
        self._is_idle, self._busy_since = False, time.monotonic()
        try:
            pause_s = await super().turn()
        finally:
            self._busy_since = None
        self._is_idle = pause_s >= self._idle_after_s
        return pause_s

    async def _sleep(self, for_s: float) -> None:
        if self._is_idle:
            await self._wakeup.wait()
        else:
            await super()._sleep(for_s)

    def wake(self) -> None:
        """Let it take a turn."""
        self._wakeup.set()

    def close(self) -> None:
        # The fleet may have taken the lock since it last looked; resigning checks the owner.
        self.is_leader = True
        super().close()
        self.wake()

    def renewed(self, leads: bool) -> None:
        """Learn who has the lock; a leader that is new begins at once."""
        is_new = leads and not self.is_leader
        self._leads(leads)
        if is_new:
            self.wake()

    @property
    def problem(self) -> str:
        """Why it does not do its duty; empty if it does."""
        silent_s = time.monotonic() - (self._busy_since or time.monotonic())
        if not self.task.done() and silent_s <= STUCK_AFTER_S and not self.refusal:
            return ""
        why = "ended" if self.task.done() else f"has done nothing for {silent_s:.0f} s"
        about = f"the {self.duty} of queue {self._office.keys.queue!r}"
        return f"{about}: {self.refusal}" if self.refusal else f"{about} {why}"


class _Promoter(_Woken, Promoter):
    pass


class _Scheduler(_Woken, Scheduler):
    @property
    def sweep_is_due(self) -> bool:
        return self._sweep_at.passed


class _Led:
    """A queue, and who leads it here."""

    def __init__(self, store: AsyncStore, office: Office) -> None:
        self.keys = office.keys
        self.promoter = _Promoter(store, office, TICK_MS)
        self.scheduler = _Scheduler(store, office, SCHEDULER_TICK_MS)
        self.leaders: Sequence[_Woken] = (self.promoter, self.scheduler)

    def renewed(self, found: Leadership, server_ms: int) -> None:
        self.promoter.renewed(found.promotes)
        if self.scheduler.refusal:
            # It learns by itself that the clocks agree again.
            self.scheduler.wake()
            return
        self.scheduler.renewed(found.schedules)
        fire_ms = found.next_fire_ms
        if not found.schedules or fire_ms is None:
            return
        if fire_ms - server_ms <= _FIRE_WITHIN_MS or self.scheduler.sweep_is_due:
            self.scheduler.wake()


class Fleet:
    """Leads queues in the name of *holder*, each if nobody else does, until closed."""

    def __init__(self, store: AsyncStore, holder: str) -> None:
        """Nothing is done before `run`."""
        self._store, self._holder = store, holder
        self._led: dict[str, _Led] = {}
        self._leaving: set[asyncio.Future[None]] = set()
        self._renew_at = Deadline(0)
        self._looked_at = time.monotonic()
        self._is_cluster: bool | None = None
        self._next_turn = 0
        self.clock_ahead_s = 0.0
        """By how much the clock of this machine was ahead of the server's, at least."""

    @property
    def queues(self) -> list[str]:
        """The names of the queues that are led, or would be."""
        return list(self._led)

    def lead(self, keys: Keys) -> None:
        """Lead one more queue. To be called where the loop runs."""
        if keys.queue not in self._led:
            self._led[keys.queue] = _Led(self._store, Office(keys, self._holder))
            self._renew_at = Deadline(0)

    def release(self, queue: str) -> None:
        """Let others lead *queue*."""
        for leader in self._led.pop(queue).leaders:
            leader.close()
            self._leaving.add(leader.task)
            leader.task.add_done_callback(self._leaving.discard)

    async def run(self) -> None:
        """Look after the queues until cancelled. Survives any absence of the server."""
        wait = pauses(longest_s=1.0)
        while True:
            began = time.monotonic()
            try:
                await self._look()
                pause_s = max(0.0, self._tick_s - (time.monotonic() - began))
                wait = pauses(longest_s=1.0)
            except Exception as error:
                surprise = not isinstance(error, TamboError)
                log.warning("cannot look after the queues: %s", error, exc_info=surprise)
                pause_s = next(wait)
            self._looked_at = time.monotonic()
            await asyncio.sleep(pause_s)

    async def close(self, within_s: float) -> None:
        """Give up all locks, or stop trying after *within_s* seconds. `run` must have ended."""
        for queue in self.queues:
            self.release(queue)
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def problem(self) -> str:
        """Why not all is led that should be; empty if all is well."""
        silent_s = time.monotonic() - self._looked_at
        if silent_s > STUCK_AFTER_S + self._tick_s:
            return f"nobody has looked after the queues for {silent_s:.0f} s"
        found = (leader.problem for led in self._led.values() for leader in led.leaders)
        return next(filter(None, found), "")

    @property
    def _tick_s(self) -> float:
        tick_s = TICK_MS / 1000
        if self._is_cluster:
            return max(tick_s, len(self._led) / _CLUSTER_CALLS_A_S)
        return tick_s

    async def _look(self) -> None:
        if self._is_cluster is None:
            self._is_cluster = await self._store.run(is_cluster())
        if self._renew_at.passed:
            self._renew_at = Deadline(RENEW_EVERY_S)
            await self._renew()
        chunks = self._chunks([led for led in self._led.values() if led.promoter.is_leader])
        within_ms = round(self._tick_s * 1000)
        calls = [fleet_ops.due_queues([led.keys for led in chunk], within_ms) for chunk in chunks]
        for chunk, due in zip(chunks, await self._store.run_all(calls), strict=True):
            for number in due:
                chunk[number].promoter.wake()

    async def _renew(self) -> None:
        asked_ms, chunks = now_ms(), self._chunks(list(self._led.values()))
        calls: list[Any] = [
            fleet_ops.renew_locks([led.keys for led in chunk], self._holder, asked_ms)
            for chunk in chunks
        ]
        renewals: list[Renewal] = await self._store.run_all(calls)
        for chunk, renewal in zip(chunks, renewals, strict=True):
            ahead_ms = lead_ops.clock_ahead_ms(asked_ms, renewal.server_ms, now_ms())
            self.clock_ahead_s = ahead_ms / 1000
            if abs(ahead_ms) > CLOCKS_APART_MS:
                # One of them says so; there is no need to ask a thousand times.
                chunk[0].scheduler.wake()
            for led, found in zip(chunk, renewal.queues, strict=True):
                led.renewed(found, renewal.server_ms)
        self._let_some_turn()

    def _let_some_turn(self) -> None:
        led = list(self._led.values())
        first = self._next_turn if self._next_turn < len(led) else 0
        self._next_turn = first + _TURNS_A_RENEWAL
        for each in led[first : self._next_turn]:
            each.promoter.wake()

    def _chunks(self, led: list[_Led]) -> list[list[_Led]]:
        size = 1 if self._is_cluster else fleet_ops.QUEUES
        return [led[first : first + size] for first in range(0, len(led), size)]
