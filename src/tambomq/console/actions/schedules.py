"""Actions on recurring jobs: run one now, skip its next fire."""

from __future__ import annotations

from datetime import UTC, datetime

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import edit as edit_ops
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.producer.producer import Producer
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.clock import now_ms
from tambomq.console.actions.model import ActionResult
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused
from tambomq.store.aio import AsyncStore


class ScheduleActions:
    """Actions on the repeatable jobs of ChasquiMQ."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store

    async def run_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Add a job of the schedule now; its next fire stays as it is."""
        keys = _keys(ref)
        found = await self._store.follow(edit_ops.read_spec(keys, key))
        if found is None:
            raise ActionRefused(f"{ref} has no schedule {key!r}")
        spec, _ = found
        attempts, backoff = (
            (spec.retry.max_attempts, spec.retry.backoff) if spec.retry else (None, None)
        )
        data, options = decode_payload(spec.payload), (None, None, attempts, backoff, None)
        plan = Producer(keys, Policy(), None).add(now_ms(), spec.job_name, data, *options)
        job = await self._store.follow(plan)
        return ActionResult(text=f"Added {job.id} of schedule {key!r} to {ref}.", id=job.id)

    async def skip_schedule(self, ref: QueueRef, key: str) -> ActionResult:
        """Leave out the next fire of a schedule."""
        skipped = await self._store.follow(edit_ops.skip_fire(_keys(ref), key))
        if skipped is None:
            raise ActionRefused(
                f"schedule {key!r} of {ref} is gone, ends with its next fire, or has just fired: "
                "look again"
            )
        was_ms, next_ms = skipped
        return ActionResult(
            text=f"Schedule {key!r} of {ref} skips {_utc(was_ms)}: next at {_utc(next_ms)}."
        )


def _keys(ref: QueueRef) -> Keys:
    if ref.protocol != "chasqui":
        raise ActionRefused(f"{ref.protocol} has no schedules")
    return Keys(ref.name)


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
