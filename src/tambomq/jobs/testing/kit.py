"""The methods of `Jobs` for tests. What they need is imported when they are called."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from typing import ParamSpec

    from tambomq.jobs.function import JobFunction
    from tambomq.jobs.jobs import Jobs
    from tambomq.jobs.testing.due import JobRun
    from tambomq.jobs.testing.trial import TrialRun

    P = ParamSpec("P")
R = TypeVar("R")


class JobsTestKit:
    """What `Jobs` offers to tests."""

    async def run_due(
        self,
        now: datetime | float | None = None,
        *,
        max_runs: int = 1000,
        timeout_s: float = 30.0,
    ) -> list[JobRun]:
        """Run what is due at *now* in this process, and return the runs in their order.

        *now* is a time, or seconds from now: as if time had moved forward to it, delayed jobs,
        retries and recurring jobs run, one after the other, each at its own time. No worker may
        run on the queue meanwhile. Raises `RuntimeError` after *max_runs* runs, `TimeoutError` if
        the runs that are due at one time take longer than *timeout_s* real seconds.
        """
        from tambomq.jobs.testing.due import run_due  # noqa: PLC0415  (programs need it not)

        return await run_due(cast("Jobs", self), now, max_runs, timeout_s)

    def run_due_sync(
        self,
        now: datetime | float | None = None,
        *,
        max_runs: int = 1000,
        timeout_s: float = 30.0,
    ) -> list[JobRun]:
        """`run_due`, which blocks; for tests that are no coroutines."""
        import asyncio  # noqa: PLC0415

        return asyncio.run(self.run_due(now, max_runs=max_runs, timeout_s=timeout_s))

    def test_job(
        self, function: JobFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> TrialRun[R]:
        """Run *function* alone, without a server: await what this returns.

        The arguments are stored and read as a queue would. Raises what the function raises.
        """
        from tambomq.jobs.testing.trial import TrialRun  # noqa: PLC0415

        payload: dict[str, Any] = function.arguments.payload(args, kwargs)
        return TrialRun(function, payload)
