"""Makes the jobs that recur, when their time has come by the server's clock.

Two clocks must agree: a scheduler leads only while its own differs from the server's by at most
five seconds. So a single one that is wrong, on either machine, fires nothing and writes no fire.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tambomq.chasqui import lead_ops
from tambomq.chasqui.agenda import TOO_LATE_MS, Agenda, agenda, brought_back_ms
from tambomq.chasqui.lead_ops import CLOCKS_APART_MS, FIRES, Due, Office
from tambomq.chasqui.leader import PEER_LOOK_S, Leader
from tambomq.chasqui.ops import CHUNK_BYTES
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire_repeat import decode_spec
from tambomq.clock import Deadline, now_ms
from tambomq.errors import InvalidFormat, ProtocolError, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

log = logging.getLogger(__name__)

TICK_MS = 1000
"""A spec that is new when the leader is asleep is noticed after so long at the latest."""

PUT_OFF_MS = 60_000
SWEEP_EVERY_S = 60.0
"""How often all specs are searched for fires that are too far in the future."""
SAY_EVERY_S = 600.0
"""How often it is logged that the clocks differ, while they do."""


class Scheduler(Leader):
    """Leads the repeatable jobs of one queue, if nobody else does."""

    duty = "scheduler"

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int = TICK_MS) -> None:
        """Nothing is done before `run`."""
        super().__init__(store, office, office.keys.scheduler_lock)
        self._tick_ms = tick_ms
        self._sweep_at, self._swept = Deadline(0), 0
        self._say_at = Deadline(0)

    async def turn(self) -> float:
        """Fire what is due; return how many seconds to wait before the next time."""
        leads, now = await self._lead()
        self._leads(leads)
        if not leads:
            self._sweep_at, self._swept = Deadline(0), 0
            return PEER_LOOK_S
        keys, began_ms = self._office.keys, now_ms()
        if due := await self._store.run(lead_ops.due_specs(self._office, now)):
            bodies = await self._store.outcomes([lead_ops.spec_body(keys, d.key) for d in due])
            for spec, body in zip(due, bodies, strict=True):
                await self._fire(spec, body, now)
        if self._sweep_at.passed:
            await self._sweep(now)
        upcoming = await self._store.run(lead_ops.next_fire(keys))
        if upcoming is None:
            return self._tick_ms / 1000
        # One that cannot be fired stays due; it must not keep us from sleeping.
        soonest_ms = 1 if not due else min(self._tick_ms, 50)
        left_ms = upcoming - now - (now_ms() - began_ms)
        return min(self._tick_ms, max(left_ms, soonest_ms)) / 1000

    async def _lead(self) -> tuple[bool, int]:
        """Whether this one leads, and the server's time; says so when the clocks differ."""
        asked_ms = now_ms()
        told = await self._store.run(lead_ops.lead(self._office, self._lock, asked_ms))
        ahead_ms = lead_ops.clock_ahead_ms(asked_ms, told.server_ms, now_ms())
        self.clock_ahead_s = ahead_ms / 1000
        if abs(ahead_ms) <= CLOCKS_APART_MS:
            if self.refusal:
                log.info("the clocks agree again: queue %r", self._office.keys.queue)
            self.refusal, self._say_at = "", Deadline(0)
            return told.leads, told.server_ms
        most_s = CLOCKS_APART_MS // 1000
        self.refusal = (
            f"it does not lead, because the clock of this machine ({_utc(asked_ms)}) and that of "
            f"Redis ({_utc(told.server_ms)}) differ by more than {most_s} s: set the wrong one"
        )
        if self._say_at.passed:
            self._say_at = Deadline(SAY_EVERY_S)
            log.warning("the scheduler of queue %r: %s", self._office.keys.queue, self.refusal)
        return False, told.server_ms

    async def _sweep(self, now: int) -> None:
        """Bring back fires that a wrong clock put too far into the future; a page at a time."""
        office, keys = self._office, self._office.keys
        after_ms = now + TOO_LATE_MS
        page = await self._store.run(lead_ops.late_specs(office, after_ms, self._swept))
        bodies = await self._store.outcomes([lead_ops.spec_body(keys, each.key) for each in page])
        for late, body in zip(page, bodies, strict=True):
            self._swept += 1
            try:
                spec = decode_spec(body if isinstance(body, bytes) else b"")
                due_ms = brought_back_ms(spec, late.fire_at_ms, now)
            except ProtocolError:
                # It is reported when it is due.
                continue
            if due_ms is not None:
                was_ms = late.fire_at_ms
                await self._store.run(lead_ops.fire(office, spec, late.key, was_ms, 0, due_ms, now))
                self._swept -= 1
                log.warning(
                    "repeatable job %r of queue %r was due at %s, later than it recurs: now at %s",
                    late.key, keys.queue, _utc(was_ms), _utc(due_ms),
                )  # fmt: skip
        if len(page) < office.batch:
            self._sweep_at, self._swept = Deadline(SWEEP_EVERY_S), 0

    async def _fire(self, due: Due, body: bytes | TamboError | None, now: int) -> None:
        queue = self._office.keys.queue
        if isinstance(body, StoreUnavailable):
            raise body
        if isinstance(body, TamboError):
            log.error("cannot read the repeatable job %r of queue %r: %s", due.key, queue, body)
            await self._store.run(lead_ops.put_off(self._office, due, now + PUT_OFF_MS))
            return
        try:
            for call in self._calls(due, decode_spec(body or b""), now):
                await self._store.run(call)
        except ProtocolError as error:
            log.error("repeatable job %r of queue %r is dead: %s", due.key, queue, error)  # noqa: TRY400  (nothing of ours is broken)
            why = f"repeat spec: {error}"
            await self._store.run(lead_ops.drop_spec(self._office, due.key, body or b"", why, now))

    def _calls(self, due: Due, spec: RepeatSpec, now: int) -> Iterator[Call[Any]]:
        """What it takes to fire *spec*: one script, or several where many fires were missed."""
        try:
            plan = agenda(spec, due.fire_at_ms, now, self._tick_ms)
        except InvalidFormat as error:
            if error.what != "timezone":
                raise
            log.warning("repeatable job %r waits a minute: %s", due.key, error)
            # Another machine may know its time zone.
            plan = Agenda((), now + PUT_OFF_MS)
        fires, was = plan.fires, due.fire_at_ms
        each = max(1, min(FIRES, CHUNK_BYTES // (len(spec.payload) + 1)))
        for first in range(0, max(1, len(fires)), each):
            chunk = fires[first : first + each]
            rest = fires[first + each : first + each + 1]
            after = rest[0] if rest else plan.next_ms or 0
            yield lead_ops.fire(self._office, spec, due.key, was, len(chunk), after, now)
            was = after


def _utc(ms: int) -> str:
    """A time as people write it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
