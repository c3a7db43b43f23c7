"""How much is in each queue, counted in Redis itself: the rows of the lake's table ``depths``.

Events tell only what somebody announced. A snapshot has all queues of one moment; one that was in
an earlier snapshot and is gone has a last row with nothing in it.
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
from tambomq.gomq import admin_ops
from tambomq.pipeline.sources import JOURNAL, Followed
from tambomq.pipeline.tables import DEPTHS
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.spark import chasqui_tables, rsmq_tables
from tambomq.spark.options import Wanted
from tambomq.store.call import Call
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

MOST: Final = 10_000
"""Of so many queues of a protocol the depth is taken."""
_PAGE: Final = 500


class Depth(NamedTuple):
    """What is in a queue: waiting, delayed, hidden or being run."""

    protocol: str
    queue: str
    backlog: int
    followed: bool
    """Whether the pipeline reads events or a journal of it."""


def taken(store: Store, wanted: Wanted) -> list[Depth]:
    """Return the depth of every queue that is *wanted*, of RSMQ in its default namespace.

    What cannot be counted is left out. Raises `StoreUnavailable`.
    """
    followed = set(Followed(wanted).names(store))
    counts = (("chasqui", _chasqui), ("gomq", _gomq), ("rsmq", _rsmq))
    found = []
    for protocol, count in counts:
        for queue, backlog in count(store, wanted):
            has_events = protocol == "chasqui" or f"{protocol}:{JOURNAL}:{queue}" in followed
            found.append(Depth(protocol, queue, backlog, has_events))
    return found


class Counted(NamedTuple):
    """A snapshot."""

    at_ms: int
    depths: list[Depth]
    former: Sequence[tuple[str, str]]
    """Queues that had something in an earlier one."""

    def write(self, to: Path) -> None:
        """Write it as a file below *to*."""
        here = {(each.protocol, each.queue) for each in self.depths}
        gone = [Depth(*place, 0, followed=False) for place in self.former if place not in here]
        if not (rows := [*self.depths, *gone]):
            return
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        values: dict[str, Any] = {
            name: [row[place] for row in rows] for place, name in enumerate(Depth._fields)
        }
        schema = pa.schema([(each.name, each.type) for each in DEPTHS if each.name != "date"])
        folder = to / f"date={at.date()}"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.table({"at": [at] * len(rows), **values}, schema=schema)
        pq.write_table(table, folder / "snapshot.parquet")


def latest(files: Iterable[Path]) -> list[Depth]:
    """Return the last snapshot of those in *files*."""
    found = [pq.ParquetFile(path).read() for path in files]
    rows = [row for table in found for row in table.to_pylist()]
    last = max((row["at"] for row in rows), default=None)
    return [Depth(*(row[name] for name in Depth._fields)) for row in rows if row["at"] == last]


def _chasqui(store: Store, wanted: Wanted) -> Iterator[tuple[str, int]]:
    names = _chosen("chasqui", chasqui_tables.names(store), wanted)
    keys = [ChasquiKeys(name) for name in names]
    streams = _counts(store, [("XLEN", each.stream) for each in keys])
    delayed = _counts(store, [("ZCARD", each.delayed) for each in keys])
    yield from _sums(names, streams, delayed)


def _rsmq(store: Store, wanted: Wanted) -> Iterator[tuple[str, int]]:
    keys = RsmqKeys()
    names = _chosen("rsmq", rsmq_tables.names(store, keys), wanted)
    yield from _sums(names, _counts(store, [("ZCARD", keys.messages(name)) for name in names]))


def _gomq(store: Store, wanted: Wanted) -> Iterator[tuple[str, int]]:
    """Yield what is in main queues and, of what was dispatched, what waits for somebody.

    Dedicated queues hold the same messages: the longest has them all.
    """
    found = {key.name: key for key in store.follow(admin_ops.overview())}
    for name in _chosen("gomq", iter(found), wanted):
        key = found[name]
        lists = [count or 0 for each in key.consumers for count in each.peers.values()]
        if key.waiting is not None:
            yield name, key.waiting + max(lists, default=0)


def _chosen(protocol: str, names: Iterator[str], wanted: Wanted) -> list[str]:
    mine = (name for name in names if wanted.includes(f"{protocol}:{JOURNAL}:{name}"))
    found = list(dict.fromkeys(islice(mine, MOST + 1)))
    if len(found) > MOST:
        log.warning("there are more than %d queues of %s: others have no depth", MOST, protocol)
    return found[:MOST]


def _counts(store: Store, asked: Sequence[tuple[str, str]]) -> list[int | None]:
    """Return what each command answers; none where the key is of another type."""
    calls = [Call(verb, (key,), (), decode=int, repeatable=True) for verb, key in asked]
    found: list[int | None] = []
    for first in range(0, len(calls), _PAGE):
        for outcome in store.outcomes(calls[first : first + _PAGE]):
            if isinstance(outcome, StoreUnavailable):
                raise outcome
            found.append(None if isinstance(outcome, TamboError) else outcome)
    return found


def _sums(names: Sequence[str], *counts: Sequence[int | None]) -> Iterator[tuple[str, int]]:
    for name, *parts in zip(names, *counts, strict=True):
        if None not in parts:
            yield name, sum(part or 0 for part in parts)
