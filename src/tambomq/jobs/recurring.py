"""Registers recurring jobs: those of the decorators ``cron`` and ``every``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.chasqui.repeat import (
    SKIP,
    MissedFiresLike,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
    missed_fires,
)
from tambomq.chasqui.schedule.cron import check_pattern
from tambomq.clock import backoff_delays
from tambomq.errors import InvalidFormat, StoreUnavailable, TamboError

if TYPE_CHECKING:
    from tambomq.jobs.function import JobFunction
    from tambomq.jobs.jobs import Jobs

log = logging.getLogger(__name__)

MAX_SPECS = 10_000


class RecurringJob(msgspec.Struct, frozen=True):
    """A job that fires by itself."""

    name: str
    pattern: RepeatPattern
    unless_queued: bool
    missed: MissedFiresPolicy
    options: dict[str, Any]
    """Attempts and backoff, where they are given."""

    @staticmethod
    def of(
        function: JobFunction[..., Any],
        pattern: RepeatPattern,
        unless_queued: bool,
        missed: MissedFiresLike | None,
    ) -> RecurringJob:
        """Check the pattern, and that *function* can be called without arguments."""
        check_pattern(pattern)
        parameters = function.signature.parameters.values()
        # Whether a parameter is injected is known only once its annotation is.
        annotated = {each.name for each in parameters if each.annotation is not each.empty}
        for each in parameters:
            needed = each.default is each.empty and each.kind is not each.VAR_KEYWORD
            if needed and each.name not in annotated:
                rule = f"a recurring job has no arguments: give {each.name} a default"
                raise InvalidFormat("job", function.name, rule)
        policy = SKIP if missed is None else missed_fires(missed)
        return RecurringJob(function.name, pattern, unless_queued, policy, function.defaults)

    @property
    def key(self) -> str:
        """Its key in the queue; it stays the same when the pattern changes."""
        return f"jobs:{self.name}"

    def is_registered(self, known: RepeatableMeta | None) -> bool:
        """Whether *known*, which the queue has for our key, is this one.

        Registering it again would restart its interval: a worker that starts often would keep it
        from ever firing.
        """
        return (
            known is not None
            and known.job_name == self.name
            and known.pattern == self.pattern
            and (known.missed_fires or SKIP) == self.missed
            and known.unless_queued == self.unless_queued
        )


async def register(jobs: Jobs) -> None:
    """Register the recurring jobs of *jobs*; waits while the server is unreachable."""
    if not jobs.recurring:
        return
    delays = backoff_delays()
    while True:
        try:
            await _register(jobs)
        except StoreUnavailable:
            await asyncio.sleep(next(delays))
        except TamboError as error:
            log.error(  # noqa: TRY400  (the text says it all)
                "cannot register the recurring jobs of queue %r: %s",
                *(jobs.queue_name, error),
                extra={"queue": jobs.queue_name},
            )
            return
        else:
            return


async def _register(jobs: Jobs) -> None:
    known = {each.key: each for each in await jobs.queue.get_repeatable_jobs(MAX_SPECS)}
    for each in jobs.recurring.values():
        if not each.is_registered(known.get(each.key)):
            await jobs.queue.upsert_repeatable_job(
                each.name,
                {},
                repeat=each.pattern,
                job_id=each.key,
                missed_fires=each.missed,
                unless_queued=each.unless_queued,
                **each.options,
            )
    for key, meta in known.items():
        if key.startswith("jobs:") and key.removeprefix("jobs:") not in jobs.definitions:
            log.warning(
                "queue %r has the recurring job %r, which this worker does not know; "
                "remove it with remove_repeatable_by_key(%r) if no other does",
                *(jobs.queue_name, meta.job_name, key),
                extra={"queue": jobs.queue_name},
            )
