"""How a pipeline is doing, from what Spark tells of its batches. Asks nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tambomq.spark import tail_offsets

_GAP: Final = "  ·  "
_LEAST_FIRST: Final = ("streams", "total", "batch", "late")
"""What a narrow terminal can do without: not what is slow, and not what is lost."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch."""

    batch: int
    rows: int
    batch_s: float
    """How long it took."""
    lag_s: float
    """By how much the stream that is furthest behind is behind."""
    streams: int
    """What is followed: events, dead letters and journals of queues."""
    lost: int
    """Entries that were removed unread so far."""

    @classmethod
    def told(cls, told: Mapping[str, Any]) -> Progress:
        """Return what Spark's progress of a query tells."""
        source = (told.get("sources") or [{}])[0]
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        marks = tail_offsets.read(end).values()
        return cls(
            batch=int(told.get("batchId", 0)),
            rows=int(told.get("numInputRows", 0)),
            batch_s=round((told.get("durationMs") or {}).get("triggerExecution", 0) / 1000, 3),
            lag_s=tail_offsets.lag_ms(end, latest) / 1000,
            streams=len(end),
            lost=sum(mark.lost for mark in marks),
        )

    def line(self, total: int, late: int, width: int | None = None) -> str:
        """Return it as a line, with the *total* of rows in the lake and those that came *late*.

        Where it would be longer than *width*, it tells less.
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
        for least in _LEAST_FIRST:
            if width is None or len(_GAP.join(words.values())) <= width:
                break
            words.pop(least, None)
        return _GAP.join(words.values())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _offset(told: Any) -> dict[str, Any]:
    """Return an offset, which Spark shows as text, as JSON or not at all."""
    found = json.loads(told) if isinstance(told, str) and told else told
    return found if isinstance(found, dict) else {}
