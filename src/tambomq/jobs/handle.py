"""A handle of a job that was added: its result, typed, its progress, its log, and `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from tambomq.jobs.function import JobFunction

R_co = TypeVar("R_co", covariant=True)

WAIT_S = 30.0


class JobHandle(Generic[R_co]):
    """A job that was added. Each method has a twin that blocks, ``…_sync``."""

    __slots__ = ("_function", "added", "id")

    def __init__(
        self, function: JobFunction[..., R_co], id: str, added: bool | None = None
    ) -> None:
        self._function = function
        self.id = id
        """The id of the job."""
        self.added = added
        """Whether it was added, or its ``job_id`` was in use; `None` where none was given."""

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._function.name

    async def result(self, *, timeout_s: float = WAIT_S) -> R_co:
        """Wait for the job and return what its function returned.

        Raises `JobFailed` when it is dead, its subclass `JobCancelled` when it was cancelled,
        `TimeoutError` after *timeout_s*.
        """
        value = await self._function.jobs.queue.wait_for_result(self.id, timeout=timeout_s)
        return self._function.typed_result(value)

    def result_sync(self, *, timeout_s: float = WAIT_S) -> R_co:
        """`result`, which blocks."""
        value = self._function.jobs.blocking_queue.wait_for_result(self.id, timeout=timeout_s)
        return self._function.typed_result(value)

    async def cancel(self, reason: str = "") -> bool:
        """Cancel the job, also if it runs: no retry, no dead letter. False if it has ended."""
        return await self._function.jobs.queue.cancel_job(self.id, reason)

    def cancel_sync(self, reason: str = "") -> bool:
        """`cancel`, which blocks."""
        return self._function.jobs.blocking_queue.cancel_job(self.id, reason)

    async def progress(self) -> Any:
        """Return the progress last reported; `None` if there is none."""
        return await self._function.jobs.queue.get_progress(self.id)

    def progress_sync(self) -> Any:
        """`progress`, which blocks."""
        return self._function.jobs.blocking_queue.get_progress(self.id)

    async def logs(self) -> list[str]:
        """Return the log lines, the oldest first."""
        return await self._function.jobs.queue.get_job_logs(self.id)

    def logs_sync(self) -> list[str]:
        """`logs`, which blocks."""
        return self._function.jobs.blocking_queue.get_job_logs(self.id)

    def __repr__(self) -> str:
        return f"JobHandle({self.name!r}, id={self.id!r})"
