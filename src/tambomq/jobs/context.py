"""The context of one run: what a function may ask and report about the job it runs for."""

from __future__ import annotations

from typing import Any, NoReturn

from tambomq.chasqui.job import Job
from tambomq.chasqui.ops.worker import entry_ms
from tambomq.errors import RetryIn


class Context:
    """The run of a job, for its function and for middleware.

    A parameter of this type is filled in by the worker and is not part of the payload. Tests may
    make one of a `Job`.
    """

    __slots__ = ("_job", "abandoned", "queue", "state")

    def __init__(self, job: Job, queue: str, state: dict[str, Any] | None = None) -> None:
        self._job, self.abandoned = job, False
        self.queue = queue
        """The name of the queue."""
        self.state: dict[str, Any] = {} if state is None else state
        """What start hooks have put there; shared by all runs of a worker."""

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._job.id

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._job.name

    @property
    def attempt(self) -> int:
        """The number of this run, from 1."""
        return self._job.attempt

    @property
    def created_at_ms(self) -> int:
        """When the job was added, in milliseconds since 1970."""
        return self._job.created_at_ms

    @property
    def waits_since_ms(self) -> int | None:
        """When the job could first be read for this run, by the server's clock.

        That is when it was added or promoted. `None` in processes and in tests without a queue.
        """
        entry = self._job._entry  # noqa: SLF001  (the context stands for the job)
        return entry_ms(entry) or None

    @property
    def payload(self) -> Any:
        """The arguments as they are stored."""
        return self._job.data

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was cancelled or has timed out.

        Plain functions that take long look at it and return: nothing can interrupt them.
        """
        return self.abandoned or self._job.is_cancelled

    def progress(self, value: Any) -> Any:
        """Report progress: a percentage or any small value.

        Await it in a coroutine. In a plain function it returns when the report is stored.
        """
        return self._job.update_progress(value)

    def log(self, line: str) -> Any:
        """Append a line to the job's log; await it as `progress`."""
        return self._job.log(line)

    def retry_in(self, seconds: float, reason: str = "") -> NoReturn:
        """End this run; the job runs again in *seconds*, unless it was its last attempt."""
        raise RetryIn(seconds, reason)

    def __repr__(self) -> str:
        job = self._job
        return f"Context({job.name!r}, job_id={job.id!r}, attempt={job.attempt})"
