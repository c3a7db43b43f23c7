"""A worker of typed jobs that keeps the result or error of each run, for `Jobs.run_due`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.chasqui.job import Job
from tambomq.jobs.worker import JobsWorker

if TYPE_CHECKING:
    from tambomq.jobs.jobs import Jobs


class EndedRun(msgspec.Struct):
    """A run of the worker that has ended."""

    job: Job
    result: Any = None
    error: BaseException | None = None


class RecordingWorker(JobsWorker):
    """Runs one job at a time and keeps its outcome. It leads nothing: `run_due` moves the clock."""

    def __init__(self, jobs: Jobs) -> None:
        no_leaders = {"delayed_enabled": False, "run_scheduler": False}
        super().__init__(
            jobs,
            concurrency=1,
            observer=None,
            threads=None,
            processes=1,
            read_block_ms=50,
            **no_leaders,
        )
        self.ended: list[EndedRun] = []
        self.current = ""
        """The job that runs."""
        self._handler = _RecordingHandler(self, self._handler)


class _RecordingHandler:
    """Runs a job by the handler of a worker, and notes its result or error there."""

    def __init__(self, worker: RecordingWorker, handler: Any) -> None:
        self._worker, self._handler = worker, handler
        self.still_runs = handler.still_runs

    async def __call__(self, job: Job) -> Any:
        worker, ended = self._worker, EndedRun(job)
        worker.current = f"{job.name} {job.id}"
        try:
            stored = await self._handler(job)
        except BaseException as error:
            ended.error = error
            raise
        else:
            function = worker.jobs.definitions.get(job.name)
            ended.result = stored if function is None else function.result_of(stored)
            return stored
        finally:
            worker.current = ""
            worker.ended.append(ended)
