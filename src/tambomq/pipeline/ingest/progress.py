"""Progress of a pipeline's batches, from Spark's progress reports, and as a line of text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tambomq.spark.tail import offsets as tail_offsets

_GAP: Final = "  ·  "
_OMITTED_FIRST: Final = ("streams", "total", "batch", "late")
"""Omitted on a narrow terminal, in this order. The lag and the lost entries are always shown."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one batch."""

    batch: int
    rows: int
    batch_s: float
    """Its duration."""
    lag_s: float
    """The lag of the stream that is furthest behind."""
    streams: int
    """The number of streams that are followed: events, dead letters and journals."""
    lost: int
    """Entries that were trimmed before they were read, so far."""

    @classmethod
    def from_spark(cls, report: Mapping[str, Any]) -> Progress:
        """Return the progress in *report*, an element of Spark's ``recentProgress``."""
        source = (report.get("sources") or [{}])[0]
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        offsets = tail_offsets.decode(end).values()
        return cls(
            batch=int(report.get("batchId", 0)),
            rows=int(report.get("numInputRows", 0)),
            batch_s=round((report.get("durationMs") or {}).get("triggerExecution", 0) / 1000, 3),
            lag_s=tail_offsets.lag_ms(end, latest) / 1000,
            streams=len(end),
            lost=sum(each.lost for each in offsets),
        )

    def line(self, total: int, late: int, width: int | None = None) -> str:
        """Return one line of text, with the *total* of rows in the lake and the *late* ones.

        If it would be longer than *width* characters, less important parts are omitted.
        """
        rate = self.rows / self.batch_s if self.batch_s else 0
        words = {
            "batch": f"batch {self.batch}",
            "rows": f"{_count(self.rows, 'row')} in {self.batch_s:.1f} s"
            + (f" ({rate:,.0f}/s)" if rate >= 1 else ""),
            "lag": f"lag {self.lag_s:.1f} s",
            "streams": _count(self.streams, "stream"),
            "total": f"{_count(total, 'row')} in the lake",
        }
        words |= {"lost": f"{self.lost:,} lost"} if self.lost else {}
        words |= {"late": f"{late:,} late"} if late else {}
        for name in _OMITTED_FIRST:
            if width is None or len(_GAP.join(words.values())) <= width:
                break
            words.pop(name, None)
        return _GAP.join(words.values())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _offset(shown: Any) -> dict[str, Any]:
    """Return an offset, which Spark shows as text, as JSON or not at all."""
    found = json.loads(shown) if isinstance(shown, str) and shown else shown
    return found if isinstance(found, dict) else {}
