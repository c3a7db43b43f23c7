"""The latest end of each job, collected from a section of the events stream. No Redis.

The section begins at the newest event and grows at both ends: by new events, and by older ones for
callers that wait for a job that may have ended before.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from tambomq.chasqui.job import QueueEvent
from tambomq.ids import ulid_ms

MAX_JOBS = 50_000
"""Jobs that are remembered: about 15 MB."""

ENDED = frozenset(("completed", "dlq", "cancelled"))
_WAITS_AGAIN = frozenset(("delayed", "retry-scheduled"))


class JobEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a job: it completed, went to the dead-letter queue, or was cancelled."""

    event_id: str
    reason: str | None
    """Why it was dead-lettered or cancelled; `None` if it completed."""
    is_cancelled: bool = False

    @property
    def before(self) -> str:
        """The stream id after which an entry of this job means that it was added again.

        That is the millisecond before its end, as it may be added again in the same one.
        """
        return f"{max(1, _ms(self.event_id)) - 1}-{2**64 - 1}"


class EndedJobs:
    """The latest end of each job in the section of the events stream that was read."""

    def __init__(self) -> None:
        """Begin with an empty section; see `begin`."""
        self.begin("0-0")

    def begin(self, newest: str) -> None:
        """Forget everything, and begin a section after the event *newest*."""
        self._known: dict[str, JobEnd | None] = {}
        self.newest = newest
        """The id to read on from."""
        self.before = newest
        """The id to read back from."""
        self._read_all = newest == "0-0"

    def append(self, after: str, page: Sequence[QueueEvent]) -> None:
        """Add events that follow the event *after*; does nothing if they are known already."""
        if page and after == self.newest:
            self.newest = page[-1].event_id
            for event in page:
                if event.job_id and (end := _end(event)) is not _NOTHING:
                    self._known[event.job_id] = end

    def prepend(self, page: Sequence[QueueEvent], asked: int) -> None:
        """Add events up to `before`, newest first; fewer than *asked* mean there are no more."""
        for event in page:
            if event.job_id and (end := _end(event)) is not _NOTHING:
                self._known.setdefault(event.job_id, end)
        if page:
            self.before = f"({page[-1].event_id}"
        self._read_all = len(page) < asked

    def covers(self, from_ms: int) -> bool:
        """Whether all events since *from_ms*, by the server's clock, have been read."""
        return self._read_all or _ms(self.before) < from_ms

    def of(self, job_id: str) -> JobEnd | None:
        """Return how a job has ended; `None` if no event says so."""
        return self._known.get(job_id)

    def trim(self, wanted: Container[str]) -> None:
        """If there are too many ends, forget all but those of *wanted* jobs."""
        if len(self._known) > MAX_JOBS:
            self._known = {id: end for id, end in self._known.items() if id in wanted}
            self.before, self._read_all = self.newest, False


def _ms(id: str) -> int:
    return int(id.lstrip("(").partition("-")[0])


_NOTHING = JobEnd("", "")


def _end(event: QueueEvent) -> JobEnd | None:
    """Return the end that *event* reports, `None` if the job waits again, `_NOTHING` for others.

    The event that a job starts is no sign that it runs again: it is repeated after a lost reply.
    Whether a job was added again after its end shows in the stream.
    """
    if event.name in ENDED:
        if event.name == "completed":
            return JobEnd(event.event_id, None)
        reason = str(event.fields.get("reason", ""))
        return JobEnd(event.event_id, reason, event.name == "cancelled")
    return None if event.name in _WAITS_AGAIN else _NOTHING


class LookBackLimit(msgspec.Struct, frozen=True):
    """How far back to read the events for a job, at most."""

    from_ms: int
    pages: int | None = None


PAGE = 1000


def first_look_back(job_id: str) -> LookBackLimit:
    """Look back to half a second before the job was made, as far as its id says when.

    A caller that adds a job and waits for it should not have to read old events.
    """
    made_ms = ulid_ms(job_id)
    return LookBackLimit(0, 1) if made_ms is None else LookBackLimit(made_ms - 500)


def second_look_back(job_id: str) -> LookBackLimit:
    """Look back further, after a second without a result.

    The producer's clock may be ahead of the server's, by as much as a leader's may.
    """
    made_ms = ulid_ms(job_id)
    return LookBackLimit(0 if made_ms is None else made_ms - 5_000)
