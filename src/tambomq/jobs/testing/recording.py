"""A worker of typed jobs that keeps the result or error of each run, for `Jobs.run_due`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tambomq.chasqui.job import Job
from tambomq.errors import RemoteProtocolError
from tambomq.jobs.worker import JobsWorker
from tambomq.runtime.observer import RunOutcome, RunRecord

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
        self.outcomes: dict[tuple[str, int], RunOutcome] = {}
        """What became of each run, by job id and attempt."""
        super().__init__(
            jobs,
            concurrency=1,
            observer=_OutcomeObserver(self.outcomes),
            threads=None,
            processes=1,
            read_block_ms=50,
            **no_leaders,
        )
        self.ended: list[EndedRun] = []
        self.current = ""
        """The job that runs."""
        self._handler = _RecordingHandler(self, self._handler)


class _OutcomeObserver:
    """Notes what Redis has decided about each run."""

    def __init__(self, outcomes: dict[tuple[str, int], RunOutcome]) -> None:
        self._outcomes = outcomes

    def run_started(self, queue: str, id: str, name: str, attempt: int) -> None:
        """Note nothing."""

    def handler_ended(self, queue: str, id: str) -> None:
        """Note nothing."""

    def run_ended(self, record: RunRecord) -> None:
        """Note the outcome."""
        self._outcomes[record.id, record.attempt] = record.outcome


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
            try:
                ended.result = stored if function is None else function.typed_result(stored)
            except RemoteProtocolError as error:
                # The job has completed: only who asks for its result finds that it does not fit.
                ended.error = error
            return stored
        finally:
            worker.current = ""
            worker.ended.append(ended)
