"""How a pipeline is doing, from what Spark tells of its batches. Asks nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tambomq.spark import tail_offsets


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

    def line(self, total: int, late: int) -> str:
        """Return it as a line, with the *total* of rows in the lake and those that came *late*."""
        rate = self.rows / self.batch_s if self.batch_s else 0
        words = [
            f"batch {self.batch}",
            f"{_count(self.rows, 'row')} in {self.batch_s:.1f} s"
            + (f" ({rate:,.0f}/s)" if rate >= 1 else ""),
            f"lag {self.lag_s:.1f} s",
            _count(self.streams, "stream"),
            f"{_count(total, 'row')} in the lake",
        ]
        words += [f"{self.lost:,} lost"] if self.lost else []
        words += [f"{late:,} late"] if late else []
        return "  ·  ".join(words)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _offset(told: Any) -> dict[str, Any]:
    """Return an offset, which Spark shows as text, as JSON or not at all."""
    found = json.loads(told) if isinstance(told, str) and told else told
    return found if isinstance(found, dict) else {}
