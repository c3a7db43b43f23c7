"""The leaders of many queues, driven from one loop so that idle queues cost next to nothing.

Each queue has a promoter and a scheduler as tasks, which sleep until the fleet wakes them. One
script per tick finds the due queues among 250, and another renews their locks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.leader import Leader
from tambomq.chasqui.leader.promoter import TICK_MS, Promoter
from tambomq.chasqui.leader.scheduler import TICK_MS as SCHEDULER_TICK_MS
from tambomq.chasqui.leader.scheduler import Scheduler
from tambomq.chasqui.ops import fleet as fleet_ops
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.fleet import Leadership, LockRenewal
from tambomq.chasqui.ops.leader import CLOCKS_APART_MS, LeaderConfig
from tambomq.clock import Deadline, backoff_delays, now_ms
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.features import is_cluster

RENEW_EVERY_S: Final = 1.0
"""Interval at which locks are renewed, free ones acquired, and new recurring jobs noticed."""
STUCK_AFTER_S: Final = 15.0
"""A turn longer than this is reported as stuck: the store gives up on the server after 10 s."""
# Wake a scheduler if a fire is due before the next renewal, with a margin.
_FIRE_WITHIN_MS: Final = SCHEDULER_TICK_MS + 500
# At each renewal this many promoters take a turn even if nothing is due: they prune dead workers
# and detect a released engine that has joined. A thousand queues take 20 s.
_TURNS_A_RENEWAL: Final = 50
# On a cluster each queue needs a call of its own, so the tick is stretched to stay below this.
_CLUSTER_CALLS_A_S: Final = 500

log = logging.getLogger(__name__)


class _WakeableLeader(Leader):
    """A leader that sleeps until it is woken, or until its next work is due."""

    def __init__(self, store: AsyncStore, config: LeaderConfig, tick_ms: int) -> None:
        # `Promoter` and `Scheduler` take a tick where `Leader` takes a lock.
        super().__init__(store, config, tick_ms)  # type: ignore[arg-type]
        self._idle_after_s = tick_ms / 1000
        self._wakeup, self._is_idle = asyncio.Event(), False
        self._busy_since: float | None = None
        self.task = asyncio.ensure_future(self.run())

    async def turn(self) -> float:
        # Cleared first, so that a wakeup during the turn causes another turn.
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
        """End the sleep; the leader takes a turn."""
        self._wakeup.set()

    def close(self) -> None:
        # The fleet may have acquired the lock since the last turn; `resign` checks the owner.
        self.is_leader = True
        super().close()
        self.wake()

    def renewed(self, leads: bool) -> None:
        """Take over the result of a lock renewal; a new leader takes its first turn at once."""
        is_new = leads and not self.is_leader
        self._set_leading(leads)
        if is_new:
            self.wake()

    @property
    def problem(self) -> str:
        """Why it does not work; empty if it does."""
        silent_s = time.monotonic() - (self._busy_since or time.monotonic())
        if not self.task.done() and silent_s <= STUCK_AFTER_S and not self.refusal:
            return ""
        why = "ended" if self.task.done() else f"has done nothing for {silent_s:.0f} s"
        about = f"the {self.role} of queue {self._config.keys.queue!r}"
        return f"{about}: {self.refusal}" if self.refusal else f"{about} {why}"


class _Promoter(_WakeableLeader, Promoter):
    pass


class _Scheduler(_WakeableLeader, Scheduler):
    @property
    def sweep_is_due(self) -> bool:
        return self._sweep_at.passed


class _LedQueue:
    """A queue with its promoter and its scheduler."""

    def __init__(self, store: AsyncStore, config: LeaderConfig) -> None:
        self.keys = config.keys
        self.promoter = _Promoter(store, config, TICK_MS)
        self.scheduler = _Scheduler(store, config, SCHEDULER_TICK_MS)
        self.leaders: Sequence[_WakeableLeader] = (self.promoter, self.scheduler)

    def renewed(self, found: Leadership, server_ms: int) -> None:
        self.promoter.renewed(found.promotes)
        if self.scheduler.refusal:
            # Its turn compares the clocks again.
            self.scheduler.wake()
            return
        self.scheduler.renewed(found.schedules)
        fire_ms = found.next_fire_ms
        if not found.schedules or fire_ms is None:
            return
        if fire_ms - server_ms <= _FIRE_WITHIN_MS or self.scheduler.sweep_is_due:
            self.scheduler.wake()


class Fleet:
    """Leads queues, with locks owned by *holder*; queues led elsewhere are on standby."""

    def __init__(self, store: AsyncStore, holder: str) -> None:
        """Prepare only; `run` starts the work."""
        self._store, self._holder = store, holder
        self._led: dict[str, _LedQueue] = {}
        self._leaving: set[asyncio.Future[None]] = set()
        self._renew_at = Deadline(0)
        self._last_tick_at = time.monotonic()
        self._is_cluster: bool | None = None
        self._next_turn = 0
        self.clock_ahead_s = 0.0
        """Lower bound of this machine's clock lead over the server's, in seconds."""

    @property
    def queues(self) -> list[str]:
        """The names of the queues that are led here or on standby."""
        return list(self._led)

    def lead(self, keys: Keys) -> None:
        """Add a queue. Call this on the event loop."""
        if keys.queue not in self._led:
            self._led[keys.queue] = _LedQueue(self._store, LeaderConfig(keys, self._holder))
            self._renew_at = Deadline(0)

    def release(self, queue: str) -> None:
        """Stop leading *queue* and release its locks."""
        for leader in self._led.pop(queue).leaders:
            leader.close()
            self._leaving.add(leader.task)
            leader.task.add_done_callback(self._leaving.discard)

    async def run(self) -> None:
        """Run ticks until cancelled. Keeps retrying while the server is unreachable."""
        wait = backoff_delays(longest_s=1.0)
        while True:
            began = time.monotonic()
            try:
                await self._tick()
                pause_s = max(0.0, self._tick_s - (time.monotonic() - began))
                wait = backoff_delays(longest_s=1.0)
            except Exception as error:
                surprise = not isinstance(error, TamboError)
                log.warning("cannot check the queues: %s", error, exc_info=surprise)
                pause_s = next(wait)
            self._last_tick_at = time.monotonic()
            await asyncio.sleep(pause_s)

    async def close(self, within_s: float) -> None:
        """Release all locks, or give up after *within_s* seconds. `run` must have ended."""
        for queue in self.queues:
            self.release(queue)
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    @property
    def problem(self) -> str:
        """The first problem of the fleet or of a leader; empty if there is none."""
        silent_s = time.monotonic() - self._last_tick_at
        if silent_s > STUCK_AFTER_S + self._tick_s:
            return f"no leader has checked the queues for {silent_s:.0f} s"
        found = (leader.problem for led in self._led.values() for leader in led.leaders)
        return next(filter(None, found), "")

    @property
    def _tick_s(self) -> float:
        tick_s = TICK_MS / 1000
        if self._is_cluster:
            return max(tick_s, len(self._led) / _CLUSTER_CALLS_A_S)
        return tick_s

    async def _tick(self) -> None:
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
        renewals: list[LockRenewal] = await self._store.run_all(calls)
        for chunk, renewal in zip(chunks, renewals, strict=True):
            ahead_ms = leader_ops.clock_ahead_ms(asked_ms, renewal.server_ms, now_ms())
            self.clock_ahead_s = ahead_ms / 1000
            if abs(ahead_ms) > CLOCKS_APART_MS:
                # One scheduler logs the difference for all.
                chunk[0].scheduler.wake()
            for led, found in zip(chunk, renewal.queues, strict=True):
                led.renewed(found, renewal.server_ms)
        self._wake_some_promoters()

    def _wake_some_promoters(self) -> None:
        led = list(self._led.values())
        first = self._next_turn if self._next_turn < len(led) else 0
        self._next_turn = first + _TURNS_A_RENEWAL
        for each in led[first : self._next_turn]:
            each.promoter.wake()

    def _chunks(self, led: list[_LedQueue]) -> list[list[_LedQueue]]:
        size = 1 if self._is_cluster else fleet_ops.QUEUES
        return [led[first : first + size] for first in range(0, len(led), size)]
