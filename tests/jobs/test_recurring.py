"""Recurring jobs: registered once, again when they change, and without arguments."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui import BackoffSpec, RepeatPattern
from tambomq.chasqui.repeat import RepeatableMeta
from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.jobs import Context, Jobs
from tambomq.jobs.recurring import RecurringJob, register


class Database:
    pass


later = Jobs("q")


@later.every(60)
async def tidy_later(database: LaterDatabase) -> None: ...


class LaterDatabase:
    pass


class FakeQueue:
    """Lists what was upserted, as a queue does; *refuses* the job of that name."""

    def __init__(self, refuses: str = "") -> None:
        self.known: dict[str, RepeatableMeta] = {}
        self.upserts: list[str] = []
        self._refuses = refuses

    async def get_repeatable_jobs(self, _: int) -> list[RepeatableMeta]:
        return list(self.known.values())

    async def upsert_repeatable_job(
        self, name: str, _: Any, *, repeat: RepeatPattern, job_id: str, **options: Any
    ) -> None:
        if name == self._refuses:
            raise InvalidValue("attempts and backoff", 1, "left out")
        self.upserts.append(name)
        self.known[job_id] = RepeatableMeta(job_id, name, repeat, 0, **options)


async def upserts(queue: FakeQueue, **how: Any) -> list[str]:
    """Return what a worker registers whose jobs are defined by these options."""
    jobs, queue.upserts = Jobs("q"), []
    jobs.connections.make_queue = lambda *_, **__: queue  # type: ignore[assignment]
    jobs.every(3600, **how)(tick)
    jobs.cron("0 9 * * *", name="report")(tick)
    await register(jobs)
    return queue.upserts


def tick() -> None: ...


@pytest.mark.parametrize(
    "changed",
    [
        {"attempts": 2},
        {"backoff": 500},
        {"backoff": BackoffSpec.fixed(500)},
        {"attempts": 2, "backoff": {"kind": "exponential", "delay_ms": 7}},
        {"unless_queued": False},
        {"missed_fires": {"kind": "fire-once"}},
    ],
)
async def test_a_job_whose_stored_options_changed_is_registered_again(
    changed: dict[str, Any],
) -> None:
    queue = FakeQueue()
    assert await upserts(queue) == ["tick", "report"]
    assert await upserts(queue) == []
    assert await upserts(queue, **changed) == ["tick"]
    assert await upserts(queue, **changed) == []
    assert await upserts(queue) == ["tick"]


async def test_options_that_are_not_stored_change_nothing() -> None:
    queue = FakeQueue()
    await upserts(queue)
    assert await upserts(queue, timeout_s=5, retry_on=(ValueError,)) == []


async def test_a_recurring_job_that_the_program_has_given_up_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = FakeQueue()
    await upserts(queue)
    jobs = Jobs("q")
    jobs.connections.make_queue = lambda *_, **__: queue  # type: ignore[assignment]
    # It is a job still, but has lost its `every`; the other one is gone.
    jobs.job(tick)
    jobs.cron("0 9 * * *", name="other")(tick)
    await register(jobs)
    assert "recurring job 'tick', which this worker does not know as recurring" in caplog.text
    assert "recurring job 'report', which this worker does not know; remove it" in caplog.text


async def test_a_job_that_the_queue_refuses_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await upserts(FakeQueue(refuses="tick"), attempts=2) == ["report"]
    assert "left out" in caplog.text


def test_a_parameter_that_nothing_fills_in_is_refused_where_it_is_written() -> None:
    jobs = Jobs("q")
    with pytest.raises(InvalidFormat, match="no arguments: give day a default"):

        @jobs.cron("0 9 * * *")
        def one(day: str) -> None: ...

    with pytest.raises(InvalidFormat, match="no arguments: give day a default"):

        @jobs.every(60)
        def two(ctx: Context, *, day) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    with pytest.raises(InvalidFormat, match="register what provides its type before"):

        @jobs.every(60)
        async def three(database: Database) -> None: ...


def test_a_parameter_that_is_injected_is_accepted() -> None:
    jobs = Jobs("q")

    @jobs.provide
    def database() -> Database:
        return Database()

    @jobs.every(60)
    async def tidy(ctx: Context, database: Database, days: int = 7, **more: str) -> None: ...

    assert jobs.recurring.keys() == {"tidy"}
    jobs.worker()


def test_a_type_that_is_defined_later_is_looked_at_by_the_worker() -> None:
    with pytest.raises(InvalidFormat, match="no arguments: give database a default"):
        later.worker()


def test_the_key_of_a_recurring_job_does_not_depend_on_its_pattern() -> None:
    jobs = Jobs("q")
    jobs.every(5, name="tick")(tick)
    recurring = jobs.recurring["tick"]
    assert isinstance(recurring, RecurringJob)
    assert recurring.key == "jobs:tick"
