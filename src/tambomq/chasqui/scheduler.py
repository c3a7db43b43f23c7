"""Makes the jobs that recur, when their time has come."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tambomq.chasqui import lead_ops
from tambomq.chasqui.agenda import Agenda, agenda
from tambomq.chasqui.lead_ops import FIRES, Due, Office
from tambomq.chasqui.leader import PEER_LOOK_S, Leader
from tambomq.chasqui.ops import CHUNK_BYTES
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire_repeat import decode_spec
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, ProtocolError, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

log = logging.getLogger(__name__)

TICK_MS = 1000
"""A spec that is new when the leader is asleep is noticed after so long at the latest."""

PUT_OFF_MS = 60_000


class Scheduler(Leader):
    """Leads the repeatable jobs of one queue, if nobody else does."""

    duty = "scheduler"

    def __init__(self, store: AsyncStore, office: Office, tick_ms: int = TICK_MS) -> None:
        """Nothing is done before `run`."""
        super().__init__(store, office, office.keys.scheduler_lock)
        self._tick_ms = tick_ms

    async def turn(self) -> float:
        """Fire what is due; return how many seconds to wait before the next time."""
        leads = await self._store.run(lead_ops.lead(self._office, self._lock))
        self._leads(leads)
        if not leads:
            return PEER_LOOK_S
        keys, now = self._office.keys, now_ms()
        if due := await self._store.run(lead_ops.due_specs(self._office, now)):
            bodies = await self._store.outcomes([lead_ops.spec_body(keys, d.key) for d in due])
            for spec, body in zip(due, bodies, strict=True):
                await self._fire(spec, body, now)
        upcoming = await self._store.run(lead_ops.next_fire(keys))
        if upcoming is None:
            return self._tick_ms / 1000
        # One that cannot be fired stays due; it must not keep us from sleeping.
        soonest_ms = 1 if not due else min(self._tick_ms, 50)
        return min(self._tick_ms, max(upcoming - now_ms(), soonest_ms)) / 1000

    async def _fire(self, due: Due, body: bytes | TamboError | None, now: int) -> None:
        queue = self._office.keys.queue
        if isinstance(body, StoreUnavailable):
            raise body
        if isinstance(body, TamboError):
            log.error("cannot read the repeatable job %r of queue %r: %s", due.key, queue, body)
            put_off = lead_ops.put_off(self._office.keys, due.key, now + PUT_OFF_MS)
            await self._store.run(put_off)
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
