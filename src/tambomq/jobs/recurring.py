"""Registers recurring jobs: those of the decorators ``cron`` and ``every``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.chasqui.job import retry_override
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
from tambomq.errors import InvalidFormat, LocalProtocolError, StoreUnavailable, TamboError
from tambomq.jobs.context import Context

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
    """Attempts and backoff; `None` leaves them to the worker."""

    @staticmethod
    def of(
        function: JobFunction[..., Any],
        pattern: RepeatPattern,
        unless_queued: bool,
        missed: MissedFiresLike | None,
    ) -> RecurringJob:
        """Check the pattern, and that *function* can be called without arguments."""
        check_pattern(pattern)
        check_no_arguments(function)
        policy = SKIP if missed is None else missed_fires(missed)
        options = {name: function.defaults.get(name) for name in ("attempts", "backoff")}
        return RecurringJob(function.name, pattern, unless_queued, policy, options)

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
            and retry_override(known.attempts, known.backoff) == retry_override(**self.options)
        )


def check_no_arguments(function: JobFunction[..., Any]) -> None:
    """Raise `InvalidFormat` if *function* has a parameter that nothing fills in.

    An annotation that names what is defined later passes: a worker looks again when it is made.
    """
    hints: dict[str, Any] | None = None
    for each in function.signature.parameters.values():
        if each.default is not each.empty or each.kind is each.VAR_KEYWORD:
            continue
        if each.annotation is not each.empty and hints is None:
            try:
                hints = function.hints
            except InvalidFormat:
                return
        kind = (hints or {}).get(each.name)
        if kind is not Context and kind not in function.jobs.providers:
            rule = (
                f"a recurring job has no arguments: give {each.name} a default, "
                "or register what provides its type before"
            )
            raise InvalidFormat("job", function.name, rule)


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
            _log_refused(jobs, error)
            return
        else:
            return


async def _register(jobs: Jobs) -> None:
    known = {each.key: each for each in await jobs.queue.get_repeatable_jobs(MAX_SPECS)}
    for each in jobs.recurring.values():
        if not each.is_registered(known.get(each.key)):
            await _upsert(jobs, each)
    for key, meta in known.items():
        if key.startswith("jobs:") and key.removeprefix("jobs:") not in jobs.recurring:
            is_plain = meta.job_name in jobs.definitions
            log.warning(
                "queue %r has the recurring job %r, which this worker %s; "
                "remove it with remove_repeatable_by_key(%r) if no other does",
                *(jobs.queue_name, meta.job_name),
                "does not know as recurring" if is_plain else "does not know",
                key,
                extra={"queue": jobs.queue_name},
            )


async def _upsert(jobs: Jobs, recurring: RecurringJob) -> None:
    try:
        await jobs.queue.upsert_repeatable_job(
            recurring.name,
            {},
            repeat=recurring.pattern,
            job_id=recurring.key,
            missed_fires=recurring.missed,
            unless_queued=recurring.unless_queued,
            **recurring.options,
        )
    except LocalProtocolError as error:
        # One that a released engine could not read, say: the others are registered all the same.
        _log_refused(jobs, error)


def _log_refused(jobs: Jobs, error: TamboError) -> None:
    log.error(
        "cannot register the recurring jobs of queue %r: %s",
        *(jobs.queue_name, error),
        extra={"queue": jobs.queue_name},
    )
