"""Depths of the queues, counted in Redis itself: the rows of the lake's table ``depths``.

Events alone do not show all messages: a producer may write no event for an add, and old events are
trimmed. A snapshot counts all queues, one page after the other, and gives them one time. A queue
that had messages in the previous snapshot and is now deleted gets a row with 0; one that exists and
cannot be counted gets none, so its last count stands.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
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
"""Per protocol; the depths of further queues, in the order of their names, are not counted."""
_PAGE: Final = 500
QueueKey = tuple[str, str]
"""Protocol and name of a queue."""
_Count = tuple[str, int | None]
"""The name of a queue and its backlog; `None` if that could not be counted."""


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
    return count_queues(store, wanted)[0]


def count_queues(store: Store, wanted: QueueSelector) -> tuple[list[Depth], set[QueueKey]]:
    """Return what `queue_depths` does, and the queues that exist and could not be counted."""
    followed = set(FollowedStreams(wanted).names(store))
    counts = (("chasqui", _chasqui), ("gomq", _gomq), ("rsmq", _rsmq))
    selected = {pattern.partition(":")[0] for pattern in wanted.patterns}
    found: list[Depth] = []
    uncounted: set[QueueKey] = set()
    # The user may have no rights to the keys of other protocols.
    for protocol, count in (each for each in counts if each[0] in selected):
        for queue, backlog in count(store, wanted):
            if backlog is None:
                uncounted.add((protocol, queue))
                continue
            has_events = protocol == "chasqui" or f"{protocol}:{JOURNAL}:{queue}" in followed
            found.append(Depth(protocol, queue, backlog, has_events))
    return found, uncounted


def is_selected(protocol: str, queue: str, wanted: QueueSelector) -> bool:
    """Whether *wanted* selects a queue."""
    return wanted.includes(f"{protocol}:{JOURNAL}:{queue}")


class DepthSnapshot(NamedTuple):
    """The depths of all queues that could be counted, with the time when that was done."""

    at_ms: int
    depths: list[Depth]
    previously_filled: Sequence[QueueKey]
    """Those that were not empty when they were last counted."""
    uncounted: Collection[QueueKey] = ()
    """Those that exist and could not be counted. They are not written as empty."""

    def write(self, to: Path) -> None:
        """Write it as a Parquet file below *to*."""
        found = {(each.protocol, each.queue) for each in self.depths}.union(self.uncounted)
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


def _chasqui(store: Store, wanted: QueueSelector) -> Iterator[_Count]:
    names, others = _chosen("chasqui", chasqui_tables.names(store), wanted)
    keys = [ChasquiKeys(name) for name in names]
    streams = _counts(store, [("XLEN", each.stream) for each in keys])
    delayed = _counts(store, [("ZCARD", each.delayed) for each in keys])
    yield from _sums(names, streams, delayed)
    yield from others


def _rsmq(store: Store, wanted: QueueSelector) -> Iterator[_Count]:
    keys = RsmqKeys()
    names, others = _chosen("rsmq", rsmq_tables.names(store, keys), wanted)
    yield from _sums(names, _counts(store, [("ZCARD", keys.messages(name)) for name in names]))
    yield from others


def _gomq(store: Store, wanted: QueueSelector) -> Iterator[_Count]:
    """Yield the messages in main queues, and those that are dispatched and not observed yet.

    The dedicated queues of a key hold copies of the same messages: the longest counts.
    """
    found = {key.name: key for key in store.follow(admin_ops.overview())}
    names, others = _chosen("gomq", iter(found), wanted)
    for name in names:
        key = found[name]
        lists = [count or 0 for each in key.consumers for count in each.peers.values()]
        yield name, None if key.waiting is None else key.waiting + max(lists, default=0)
    yield from others


def _chosen(
    protocol: str, names: Iterator[str], wanted: QueueSelector
) -> tuple[list[str], list[_Count]]:
    """Return the selected queues that are counted, and the others, which are too many."""
    # Sorted: Redis lists keys in any order, and the same queues are to be counted each time.
    found = sorted({name for name in names if is_selected(protocol, name, wanted)})
    if len(found) > MAX_QUEUES:
        log.warning(
            "there are more than %d queues of %s: the depths of the others are not counted",
            MAX_QUEUES,
            protocol,
            extra={"protocol": protocol},
        )
    return found[:MAX_QUEUES], [(name, None) for name in found[MAX_QUEUES:]]


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


def _sums(names: Sequence[str], *counts: Sequence[int | None]) -> Iterator[_Count]:
    """Yield the sum of *counts* for each name; `None` where one of them is."""
    for name, *of_name in zip(names, *counts, strict=True):
        yield name, None if None in of_name else sum(count or 0 for count in of_name)
