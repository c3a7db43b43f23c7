"""The worker of typed jobs: a `Worker` with hooks around it, threads and processes beside it."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from tambomq.chasqui.job import Job, check_whole
from tambomq.chasqui.worker.worker import Worker
from tambomq.errors import HandlersStuck
from tambomq.jobs.dispatch import JobDispatcher
from tambomq.jobs.hooks import call_hook
from tambomq.jobs.process_child import MAIN
from tambomq.jobs.processes import JobProcesses, check_importable
from tambomq.jobs.recurring import check_no_arguments, register
from tambomq.jobs.threads import JobThreads

if TYPE_CHECKING:
    from tambomq.jobs.jobs import Jobs
    from tambomq.runtime.observer import RunObserver

log = logging.getLogger(__name__)

MAX_THREADS = 10_000


class JobsWorker(Worker):
    """Runs the jobs of a `Jobs`; made by `Jobs.worker`."""

    def __init__(
        self,
        jobs: Jobs,
        *,
        concurrency: int,
        observer: RunObserver | None,
        threads: int | None,
        processes: int | None,
        store_results: bool = True,
        **worker_options: Any,
    ) -> None:
        """Check the options and every signature; nothing is connected before `run`."""
        self.jobs = jobs
        for name in jobs.recurring:
            check_no_arguments(jobs.definitions[name])
        for function in jobs.definitions.values():
            # Types that cannot be stored are found before the first job is taken.
            _ = function.arguments, function.result_of
            if function.config.process:
                check_importable(function)
        check_whole("threads", threads or concurrency, MAX_THREADS, minimum=1)
        self._threads_max = threads
        count = processes or os.cpu_count() or 1
        self._processes_max = check_whole("processes", count, MAX_THREADS, minimum=1)
        self._stuck: dict[str, str] = {}
        self.dispatch: JobDispatcher | None = None
        """Runs jobs, while this worker does."""
        super().__init__(
            jobs.queue_name,
            _Handler(self),
            concurrency=concurrency,
            store_results=store_results,
            **(jobs.connections.worker_options | worker_options),
        )
        self.observer = observer
        self.state: dict[str, Any] = {}
        """What start hooks have put there, for `Context.state`."""

    async def run(self) -> None:
        """Run the start hooks, work until `close`, and run the stop hooks; see `Worker.run`.

        Raises `HandlersStuck` when plain functions that timed out occupy all threads.
        """
        self._check_not_again()
        # ``tambo work --concurrency`` may have changed it since.
        threads = JobThreads(self.name, self._threads_max or min(self.concurrency, MAX_THREADS))
        processes = JobProcesses(self._processes_max)
        dispatch = JobDispatcher(self.jobs, threads, processes, self.state)
        threads.stuck.add_done_callback(self._end_stuck)
        registering = asyncio.ensure_future(register(self.jobs))
        try:
            await dispatch.resolver.open()
            for hook in self.jobs.start_hooks:
                await call_hook(hook, self.state)
            self.dispatch = dispatch
            await super().run()
        finally:
            registering.cancel()
            await asyncio.gather(registering, return_exceptions=True)
            await processes.close()
            threads.close()
            await self._end(dispatch)
        if self._stuck:
            raise HandlersStuck(self.name, self._stuck)

    def _check_not_again(self) -> None:
        """End the program if a process of jobs runs it again: it would start others without end."""
        if any(each.function.__module__ == MAIN for each in self.jobs.definitions.values()):
            # Not an error that whoever awaits this as a task never sees.
            raise SystemExit(
                "a process that runs jobs has imported this program, which then starts a worker: "
                "do that below `if __name__ == '__main__':`"
            )

    def _end_stuck(self, stuck: asyncio.Future[dict[str, str]]) -> None:
        # A worker that ends abandons what runs: that is no reason to complain.
        if not self.is_closed and not stuck.cancelled():
            self._stuck = stuck.result()
            self.stop()

    async def _end(self, dispatch: JobDispatcher) -> None:
        for hook in reversed(self.jobs.stop_hooks):
            try:
                await call_hook(hook, self.state)
            except Exception:
                log.exception(
                    "a stop hook of queue %r failed", self.name, extra={"queue": self.name}
                )
        try:
            await dispatch.resolver.close()
        except Exception:
            # As a stop hook: all jobs have ended, and the worker has not failed.
            log.exception(
                "a provider of queue %r failed to clean up", self.name, extra={"queue": self.name}
            )
        await self.jobs.close()


class _Handler:
    """The handler of a worker: hands jobs to its dispatcher, which `run` makes."""

    def __init__(self, worker: JobsWorker) -> None:
        self._worker = worker

    async def __call__(self, job: Job) -> Any:
        dispatch = self._worker.dispatch
        if dispatch is None:
            raise RuntimeError("the worker is not running")
        # Not through the dispatcher, which would be one more coroutine for each job.
        return await dispatch.runs.get(job.name, dispatch.unknown)(job)

    def still_runs(self, job_id: str) -> bool:
        """Whether a function of this job runs on in a thread, although its run has ended."""
        return self._worker.dispatch is not None and self._worker.dispatch.still_runs(job_id)
