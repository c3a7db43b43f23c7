"""Streams that are followed, without consuming, for tests that kill the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tambomq.chasqui.keys import Keys
from tests.spark import dying
from tests.spark.chasqui_filling import NOW, envelope
from tests.spark.dying import CrashPlan, Event
from tests.spark.tailing import PROTOCOL, fill

_KEYS = Keys("q")


def _fill_events(db: redis.Redis, numbers: Iterable[int]) -> None:
    with db.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd(_KEYS.events, {"e": "active", "id": str(number), "ts": NOW})
        pipe.execute()


def _fill_dlq(db: redis.Redis, numbers: Iterable[int]) -> None:
    with db.pipeline(transaction=False) as pipe:
        for number in numbers:
            fields: Any = {"d": envelope(str(number)), "source_id": "1-0", "reason": "x"}
            pipe.xadd(_KEYS.dlq, fields)
        pipe.execute()


@dataclass(frozen=True)
class Tail:
    """A table that is followed; *column* has the numbers it was filled with, as text."""

    kind: str
    options: dict[str, str]
    column: str
    fill: Callable[[redis.Redis, Iterable[int]], object]

    def query_spec(self, folder: Path, *events: Event, **options: Any) -> dict[str, Any]:
        """Return the case for `crash_job`: a query that follows it into files."""
        folder.mkdir(exist_ok=True)
        return {
            "kind": self.kind,
            "sink": "files",
            "folder": str(folder),
            "options": {"queue": "q", "partitions": 2, **self.options, **options},
            "doom": CrashPlan(str(folder), events).to_json(),
        }

    def rows(self, folder: Path) -> list[str]:
        """What the files hold, in order."""
        found = dying.committed(folder, self.column)
        texts = [each.decode() if isinstance(each, bytes) else each for each in found]
        return sorted(texts, key=int)


TAILS = {
    "journal": Tail(
        "tambo", {"protocol": PROTOCOL}, "body", lambda db, numbers: fill(db, "q", numbers)
    ),
    "events": Tail("chasqui", {"table": "events"}, "id", _fill_events),
    "dlq": Tail("chasqui", {"table": "dlq"}, "id", _fill_dlq),
}


def committed(home: Path) -> list[str]:
    """Return the bodies in the files that the sink's own log names."""
    return [body.decode() for body in dying.committed(home, "body")]
