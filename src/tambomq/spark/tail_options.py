"""How a tail is to be followed: the options of its own, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tambomq.spark.options import Given
from tambomq.spark.tail_offsets import EARLIEST, Mark, starting

OPTIONS: Final = ("startingOffsets", "maxRowsPerBatch", "exactRows", "failOnDataLoss")
LOOK_EVERY_S: Final = 5.0
"""How often to look for new queues: that may go through all keys of a server."""


@dataclass(frozen=True, slots=True)
class Following:
    """How to follow."""

    parts: int = 2
    """About so many tasks for a batch."""
    most_rows: int = 0
    """About so many rows in a batch; 0 for all there are."""
    exact_rows: bool = False
    """Not only about, but exactly; takes Redis a few microseconds a row."""
    starting: str | Mapping[str, Mark | str] = EARLIEST
    """Where a query without a checkpoint begins; queues that come later from their beginning."""
    fail_on_loss: bool = True
    """Whether entries that were removed unread are an error; else the offset counts them."""
    look_every_s: float = LOOK_EVERY_S

    @classmethod
    def given(cls, given: Given) -> Following:
        """Return what the options say; raise `SettingsError` if it makes no sense."""
        told = str(given.text("startingOffsets", EARLIEST))
        try:
            begin = starting(told)
        except ValueError:
            expected = "earliest, latest, or JSON by queue"
            raise given.wrong("startingOffsets", expected, told) from None
        wanted = given.wanted()
        for queue in () if isinstance(begin, str) else begin:
            if not wanted.includes(queue):
                raise given.wrong("startingOffsets", "of queues that are followed", queue)
        return cls(
            parts=given.number("partitions", 2),
            most_rows=given.number("maxRowsPerBatch", 0, least=0),
            exact_rows=given.flag("exactRows", default=False),
            starting=begin,
            fail_on_loss=given.flag("failOnDataLoss", default=True),
        )

    def begin(self, queue: str) -> Mark | str:
        """Return where to begin with *queue*."""
        if isinstance(self.starting, str):
            return self.starting
        return self.starting.get(queue, EARLIEST)
