"""Depths of the queues, counted in Redis itself: the rows of the lake's table ``depths``.

Events miss what was never announced, such as jobs from before the pipeline. A snapshot has all
queues at one time; a queue of the last snapshot that is empty or gone now gets a row with 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq.ops import admin as admin_ops
from tambomq.pipeline.ingest.sources import JOURNAL, FollowedStreams
from tambomq.pipeline.lake.tables import DEPTHS
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark.core.options import QueueSelector
from tambomq.spark.formats.chasqui import streams as chasqui_tables
from tambomq.spark.formats.rsmq import tables as rsmq_tables
from tambomq.store.call import Call
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

MAX_QUEUES: Final = 10_000
"""Per protocol; the depths of further queues are not counted."""
_PAGE: Final = 500


class Depth(NamedTuple):
    """The number of messages or jobs in a queue: waiting, delayed, hidden or running."""

    protocol: str
    queue: str
    backlog: int
    followed: bool
    """Whether the pipeline reads its events or its journal."""


def queue_depths(store: Store, wanted: QueueSelector) -> list[Depth]:
    """Return the depths of the queues that *wanted* selects; of RSMQ in the default namespace.

    Queues that cannot be counted are left out. Raises `StoreUnavailable`.
    """
    followed = set(FollowedStreams(wanted).names(store))
    counts = (("chasqui", _chasqui), ("gomq", _gomq), ("rsmq", _rsmq))
    found = []
    for protocol, count in counts:
        for queue, backlog in count(store, wanted):
            has_events = protocol == "chasqui" or f"{protocol}:{JOURNAL}:{queue}" in followed
            found.append(Depth(protocol, queue, backlog, has_events))
    return found


def is_selected(protocol: str, queue: str, wanted: QueueSelector) -> bool:
    """Whether *wanted* selects a queue."""
    return wanted.includes(f"{protocol}:{JOURNAL}:{queue}")


class DepthSnapshot(NamedTuple):
    """The depths of all queues at one time."""

    at_ms: int
    depths: list[Depth]
    previously_filled: Sequence[tuple[str, str]]
    """Protocol and queue of those that were not empty in the last snapshot."""

    def write(self, to: Path) -> None:
        """Write it as a Parquet file below *to*."""
        found = {(each.protocol, each.queue) for each in self.depths}
        emptied = [each for each in self.previously_filled if each not in found]
        emptied_rows = [Depth(*each, 0, followed=False) for each in emptied]
        if not (rows := [*self.depths, *emptied_rows]):
            return
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        values: dict[str, Any] = {
            name: [row[index] for row in rows] for index, name in enumerate(Depth._fields)
        }
        schema = pa.schema([(each.name, each.type) for each in DEPTHS if each.name != "date"])
        folder = to / f"date={at.date()}"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table({"at": [at] * len(rows), **values}, schema=schema)
        pq.write_table(table, folder / "snapshot.parquet")


def latest_depths(files: Iterable[Path]) -> list[Depth]:
    """Return the newest snapshot in *files*."""
    found = [pq.ParquetFile(path).read() for path in files]
    rows = [row for table in found for row in table.to_pylist()]
    last = max((row["at"] for row in rows), default=None)
    return [Depth(*(row[name] for name in Depth._fields)) for row in rows if row["at"] == last]


def _chasqui(store: Store, wanted: QueueSelector) -> Iterator[tuple[str, int]]:
    names = _chosen("chasqui", chasqui_tables.names(store), wanted)
    keys = [ChasquiKeys(name) for name in names]
    streams = _counts(store, [("XLEN", each.stream) for each in keys])
    delayed = _counts(store, [("ZCARD", each.delayed) for each in keys])
    yield from _sums(names, streams, delayed)


def _rsmq(store: Store, wanted: QueueSelector) -> Iterator[tuple[str, int]]:
    keys = RsmqKeys()
    names = _chosen("rsmq", rsmq_tables.names(store, keys), wanted)
    yield from _sums(names, _counts(store, [("ZCARD", keys.messages(name)) for name in names]))


def _gomq(store: Store, wanted: QueueSelector) -> Iterator[tuple[str, int]]:
    """Yield the messages in main queues, and those that are dispatched and not observed yet.

    The dedicated queues of a key hold copies of the same messages: the longest counts.
    """
    found = {key.name: key for key in store.follow(admin_ops.overview())}
    for name in _chosen("gomq", iter(found), wanted):
        key = found[name]
        lists = [count or 0 for each in key.consumers for count in each.peers.values()]
        if key.waiting is not None:
            yield name, key.waiting + max(lists, default=0)


def _chosen(protocol: str, names: Iterator[str], wanted: QueueSelector) -> list[str]:
    mine = (name for name in names if is_selected(protocol, name, wanted))
    found = list(dict.fromkeys(islice(mine, MAX_QUEUES + 1)))
    if len(found) > MAX_QUEUES:
        log.warning(
            "there are more than %d queues of %s: the depths of the others are not counted",
            MAX_QUEUES,
            protocol,
            extra={"protocol": protocol},
        )
    return found[:MAX_QUEUES]


def _counts(store: Store, asked: Sequence[tuple[str, str]]) -> list[int | None]:
    """Return the reply to each command; `None` where the key is of another type."""
    calls = [Call(verb, (key,), (), decode=int, repeatable=True) for verb, key in asked]
    found: list[int | None] = []
    for first in range(0, len(calls), _PAGE):
        for outcome in store.outcomes(calls[first : first + _PAGE]):
            if isinstance(outcome, StoreUnavailable):
                raise outcome
            found.append(None if isinstance(outcome, TamboError) else outcome)
    return found


def _sums(names: Sequence[str], *counts: Sequence[int | None]) -> Iterator[tuple[str, int]]:
    """Yield the sum of *counts* for each name, but not where one of them is `None`."""
    for name, *of_name in zip(names, *counts, strict=True):
        if None not in of_name:
            yield name, sum(count or 0 for count in of_name)
