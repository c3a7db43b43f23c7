"""Which jobs have ended, as a part of the events stream tells: the latest end of each. No Redis.

The part begins at the newest event. It grows at both ends: by what happens, and by older events for
who asks about a job that may have ended before.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from tambomq.chasqui.job import QueueEvent
from tambomq.ids import ulid_ms

MOST = 50_000
"""Jobs that are remembered; some 15 MB."""

ENDED = frozenset(("completed", "dlq"))
_WAITS_AGAIN = frozenset(("delayed", "retry-scheduled"))


class End(msgspec.Struct, frozen=True, gc=False):
    """That a job has completed, or is dead."""

    event_id: str
    reason: str | None
    """Why it is dead; `None` if it has completed."""

    @property
    def before(self) -> str:
        """A place in the queue's stream: the entries of this job are gone, unless later than that.

        A job may come in anew in the very millisecond in which it ended.
        """
        return f"{max(1, _ms(self.event_id)) - 1}-{2**64 - 1}"


class Ends:
    """The latest end of each job, in the part of the events stream that was read."""

    def __init__(self) -> None:
        """Nothing was read yet: `begin`."""
        self.begin("0-0")

    def begin(self, newest: str) -> None:
        """Forget all, and begin after the event *newest*."""
        self._known: dict[str, End | None] = {}
        self.newest = newest
        """Where to read on."""
        self.before = newest
        """Where to read back from."""
        self._read_all = newest == "0-0"

    def append(self, after: str, page: Sequence[QueueEvent]) -> None:
        """Take events that came after the event *after*; nothing if they are known."""
        if page and after == self.newest:
            self.newest = page[-1].event_id
            for event in page:
                if event.job_id and (end := _end(event)) is not _NOTHING:
                    self._known[event.job_id] = end

    def prepend(self, page: Sequence[QueueEvent], asked: int) -> None:
        """Take events up to `before`, newest first; fewer than *asked* if there are no more."""
        for event in page:
            if event.job_id and (end := _end(event)) is not _NOTHING:
                self._known.setdefault(event.job_id, end)
        if page:
            self.before = f"({page[-1].event_id}"
        self._read_all = len(page) < asked

    def reach(self, from_ms: int) -> bool:
        """Whether all events since *from_ms*, by the server's clock, were read."""
        return self._read_all or _ms(self.before) < from_ms

    def of(self, job_id: str) -> End | None:
        """Return how a job has ended; `None` if nothing tells that it has."""
        return self._known.get(job_id)

    def forget_most(self, wanted: Container[str]) -> None:
        """If there are too many, forget all but those of *wanted* jobs."""
        if len(self._known) > MOST:
            self._known = {id: end for id, end in self._known.items() if id in wanted}
            self.before, self._read_all = self.newest, False


def _ms(id: str) -> int:
    return int(id.lstrip("(").partition("-")[0])


_NOTHING = End("", "")


def _end(event: QueueEvent) -> End | None:
    """The end that *event* tells of; `None` if the job waits anew, `_NOTHING` for all others.

    That a job begins to run says nothing here: it is told again after a lost reply. Whether a job
    came in anew after its end is seen in its stream.
    """
    if event.name in ENDED:
        died = event.name == "dlq"
        return End(event.event_id, str(event.fields.get("reason", "")) if died else None)
    return None if event.name in _WAITS_AGAIN else _NOTHING


class Look(msgspec.Struct, frozen=True):
    """How far back to read for a job, at most."""

    from_ms: int
    pages: int | None = None


PAGE = 1000


def first_look(job_id: str) -> Look:
    """Return where to begin: half a second before the job was made, as far as its id tells.

    Who adds a job and waits for it should not read what others did long before.
    """
    made_ms = ulid_ms(job_id)
    return Look(0, 1) if made_ms is None else Look(made_ms - 500)


def second_look(job_id: str) -> Look:
    """Return how far to look back after a second in vain.

    The clock of the producer may be ahead of the server's, by as much as a leader's may.
    """
    made_ms = ulid_ms(job_id)
    return Look(0 if made_ms is None else made_ms - 5_000)
