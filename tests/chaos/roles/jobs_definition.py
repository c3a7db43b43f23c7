"""The typed jobs of the chaos suite: one function, defined alike for those who add and who run."""

from __future__ import annotations

from typing import Final

from tambomq.chasqui import BackoffSpec
from tambomq.jobs import Context, Jobs
from tambomq.jobs.function import JobFunction
from tests.chaos.role import RoleContext

QUEUE: Final = "q"
BUDGET: Final = 4
VARIABLE: Final = "TAMBO_TEST_ROLE"
"""The environment variable in which a worker's processes find what `RoleContext` is given."""


def define(context: RoleContext) -> tuple[Jobs, JobFunction[[str], None]]:
    """Return the jobs of a program, and their function."""
    jobs = Jobs(QUEUE, redis_url=context.url, patience_s=context.lease_s)

    @jobs.job(attempts=BUDGET, backoff=BackoffSpec.fixed(100))
    async def run(ctx: Context, text: str) -> None:
        await context.handle(text, ctx.attempt)

    return jobs, run
