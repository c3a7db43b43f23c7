"""The scheduler of a queue: adds the jobs of repeatable specs when they are due.

Time is the server's. A scheduler leads only while its own clock differs from the server's by at
most five seconds, so one wrong clock, on either machine, neither fires a job nor stores a fire.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tambomq.chasqui.leader.leader import STANDBY_POLL_S, Leader
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.add import CHUNK_BYTES
from tambomq.chasqui.ops.leader import CLOCKS_APART_MS, FIRES, DueSpec, LeaderConfig
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.schedule.missed_fires import (
    TOO_LATE_MS,
    FirePlan,
    corrected_fire_ms,
    plan_fires,
)
from tambomq.chasqui.wire.repeat import decode_spec
from tambomq.clock import Deadline, now_ms
from tambomq.errors import InvalidFormat, ProtocolError, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

log = logging.getLogger(__name__)

TICK_MS = 1000
"""Longest sleep between turns: a spec that is added meanwhile is noticed after it."""

PUT_OFF_MS = 60_000
"""Delay of a spec that cannot be read or whose time zone is unknown here."""
SWEEP_EVERY_S = 60.0
"""Interval of the search for fires that are too far in the future."""
CLOCK_WARNING_EVERY_S = 600.0
"""Interval of the warning that the clocks differ, while they do."""


class Scheduler(Leader):
    """Leads the repeatable jobs of one queue, or stands by."""

    role = "scheduler"

    def __init__(self, store: AsyncStore, config: LeaderConfig, tick_ms: int = TICK_MS) -> None:
        """Prepare only; `run` starts the work."""
        super().__init__(store, config, config.keys.scheduler_lock)
        self._tick_ms = tick_ms
        self._sweep_at, self._swept = Deadline(0), 0
        self._warn_at = Deadline(0)

    async def turn(self) -> float:
        """Fire the specs that are due; return the seconds to wait before the next turn."""
        leads, now = await self._lead()
        self._set_leading(leads)
        if not leads:
            self._sweep_at, self._swept = Deadline(0), 0
            return STANDBY_POLL_S
        began_ms = now_ms()
        due = await self._fire_due(now)
        if self._sweep_at.passed:
            await self._sweep(now)
        upcoming = await self._store.run(leader_ops.next_fire(self._config.keys))
        if upcoming is None:
            return self._tick_ms / 1000
        # A spec that cannot be fired stays due, and must not cause a busy loop.
        soonest_ms = 1 if not due else min(self._tick_ms, 50)
        left_ms = upcoming - now - (now_ms() - began_ms)
        return min(self._tick_ms, max(left_ms, soonest_ms)) / 1000

    async def fire_at(self, at_ms: int) -> bool:
        """Fire what is due at *at_ms*, whatever the server's time is; false if another leads.

        Fires that are far in the future are not corrected: an earlier call may have set them.
        """
        leads, _ = await self._lead()
        self._set_leading(leads)
        if leads:
            await self._fire_due(at_ms)
        return leads

    async def _fire_due(self, now: int) -> bool:
        """Fire the specs that are due at *now*; return whether there were any."""
        due = await self._store.run(leader_ops.due_specs(self._config, now))
        if not due:
            return False
        keys = self._config.keys
        bodies = await self._store.outcomes([leader_ops.spec_body(keys, d.key) for d in due])
        for spec, body in zip(due, bodies, strict=True):
            await self._fire(spec, body, now)
        return True

    async def _lead(self) -> tuple[bool, int]:
        """Return whether this scheduler leads, and the server's time; warn if the clocks differ."""
        asked_ms = now_ms()
        reply = await self._store.run(leader_ops.lead(self._config, self._lock, asked_ms))
        ahead_ms = leader_ops.clock_ahead_ms(asked_ms, reply.server_ms, now_ms())
        self.clock_ahead_s = ahead_ms / 1000
        if abs(ahead_ms) <= CLOCKS_APART_MS:
            if self.refusal:
                self._log.info("the clocks agree again: queue %r", self._config.keys.queue)
            self.refusal, self._warn_at = "", Deadline(0)
            return reply.leads, reply.server_ms
        max_s = CLOCKS_APART_MS // 1000
        self.refusal = (
            f"it does not lead, because the clock of this machine ({_utc(asked_ms)}) and that of "
            f"Redis ({_utc(reply.server_ms)}) differ by more than {max_s} s: correct them"
        )
        if self._warn_at.passed:
            self._warn_at = Deadline(CLOCK_WARNING_EVERY_S)
            self._log.warning(
                "the scheduler of queue %r: %s", self._config.keys.queue, self.refusal
            )
        return False, reply.server_ms

    async def _sweep(self, now: int) -> None:
        """Correct one page of fires that a wrong clock has set too far in the future."""
        config, keys = self._config, self._config.keys
        after_ms = now + TOO_LATE_MS
        page = await self._store.run(leader_ops.late_specs(config, after_ms, self._swept))
        bodies = await self._store.outcomes([leader_ops.spec_body(keys, each.key) for each in page])
        for late, body in zip(page, bodies, strict=True):
            self._swept += 1
            try:
                spec = decode_spec(body if isinstance(body, bytes) else b"")
                due_ms = corrected_fire_ms(spec, late.fire_at_ms, now)
            except ProtocolError:
                # A damaged spec is reported when it is due.
                continue
            was_ms = late.fire_at_ms
            if due_ms is not None and was_ms != await self._store.run(
                leader_ops.skipped_to(keys, late.key)
            ):
                await self._store.run(
                    leader_ops.fire(config, spec, late.key, was_ms, 0, due_ms, now)
                )
                self._swept -= 1
                self._log.warning(
                    "repeatable job %r of queue %r was due at %s, too late for its pattern: now %s",
                    late.key, keys.queue, _utc(was_ms), _utc(due_ms),
                    extra={"repeat_key": late.key},
                )  # fmt: skip
        if len(page) < config.batch:
            self._sweep_at, self._swept = Deadline(SWEEP_EVERY_S), 0

    async def _fire(self, due: DueSpec, body: bytes | TamboError | None, now: int) -> None:
        queue = self._config.keys.queue
        if isinstance(body, StoreUnavailable):
            raise body
        if isinstance(body, TamboError):
            self._log.error(
                "cannot read the repeatable job %r of queue %r: %s",
                due.key,
                queue,
                body,
                extra={"repeat_key": due.key},
            )
            await self._store.run(leader_ops.put_off(self._config, due, now + PUT_OFF_MS))
            return
        try:
            for call in self._calls(due, decode_spec(body or b""), now):
                await self._store.run(call)
        except ProtocolError as error:
            self._log.error(
                "repeatable job %r of queue %r is moved to the dead-letter queue: %s",
                due.key,
                queue,
                error,
                extra={"repeat_key": due.key},
            )
            why = f"repeat spec: {error}"
            await self._store.run(
                leader_ops.drop_spec(self._config, due.key, body or b"", why, now)
            )

    def _calls(self, due: DueSpec, spec: RepeatSpec, now: int) -> Iterator[Call[Any]]:
        """Yield the calls that fire *spec*: one, or several if many fires were missed."""
        try:
            plan = plan_fires(spec, due.fire_at_ms, now, self._tick_ms)
        except InvalidFormat as error:
            if error.what != "timezone":
                raise
            self._log.warning(
                "repeatable job %r is postponed by a minute: %s",
                due.key,
                error,
                extra={"repeat_key": due.key},
            )
            # A scheduler on another machine may know the time zone.
            plan = FirePlan((), now + PUT_OFF_MS)
        fires, was = plan.fires, due.fire_at_ms
        each = max(1, min(FIRES, CHUNK_BYTES // (len(spec.payload) + 1)))
        for first in range(0, max(1, len(fires)), each):
            chunk = fires[first : first + each]
            rest = fires[first + each : first + each + 1]
            after = rest[0] if rest else plan.next_ms or 0
            yield leader_ops.fire(self._config, spec, due.key, was, len(chunk), after, now)
            was = after


def _utc(ms: int) -> str:
    """Return a time in ISO format; in milliseconds if no calendar has it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
