"""`TailOptions`: the options of a streaming read, validated before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tambomq.spark.core.options import SourceOptions
from tambomq.spark.tail.offsets import EARLIEST, StreamOffset, starting

OPTIONS: Final = ("startingOffsets", "maxRowsPerBatch", "exactRows", "failOnDataLoss")
LOOK_EVERY_S: Final = 5.0
"""How often to look for new queues, which may scan all keys of a server."""


@dataclass(frozen=True, slots=True)
class TailOptions:
    """The options of a streaming read."""

    partition_count: int = 2
    """Approximate number of tasks per batch."""
    max_rows: int = 0
    """Approximate number of rows per batch; 0 for no limit."""
    exact_rows: bool = False
    """Makes *max_rows* exact; takes Redis a few microseconds per row."""
    starting: str | Mapping[str, StreamOffset | str] = EARLIEST
    """Where a query without a checkpoint begins; queues found later are read in full."""
    fail_on_loss: bool = True
    """Whether entries that were removed unread are an error; else the offset counts them."""
    look_every_s: float = LOOK_EVERY_S

    @classmethod
    def from_options(cls, options: SourceOptions) -> TailOptions:
        """Parse the options; raise `SettingsError` if one is invalid."""
        given = str(options.text("startingOffsets", EARLIEST))
        try:
            begin = starting(given)
        except ValueError:
            expected = "earliest, latest, or JSON by queue"
            raise options.wrong("startingOffsets", expected, given) from None
        selector = options.queue_selector()
        for queue in () if isinstance(begin, str) else begin:
            if not selector.includes(queue):
                raise options.wrong("startingOffsets", "of queues that are followed", queue)
        return cls(
            partition_count=options.number("partitions", 2),
            max_rows=options.number("maxRowsPerBatch", 0, min_value=0),
            exact_rows=options.flag("exactRows", default=False),
            starting=begin,
            fail_on_loss=options.flag("failOnDataLoss", default=True),
        )

    def begin(self, queue: str) -> StreamOffset | str:
        """Return where to begin with *queue*."""
        if isinstance(self.starting, str):
            return self.starting
        return self.starting.get(queue, EARLIEST)
