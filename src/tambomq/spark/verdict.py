"""What became of single rows of a leased stream: a way back for ``foreachBatch``.

A batch that is committed ends all its messages. A row that is to be tried again, or is dead, says
so here before; it is carried out together with the end of the others, in the same atomic step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from tambomq.chasqui import lease_ops as chasqui_ops
from tambomq.chasqui.job import MAX_ATTEMPTS
from tambomq.errors import InvalidValue, SettingsError
from tambomq.rsmq import lease_ops as rsmq_ops
from tambomq.rsmq.keys import NAMESPACE
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.model import MAX_SECONDS
from tambomq.spark.options import Place
from tambomq.store.call import Plan
from tambomq.store.connect import URL
from tambomq.store.ledger import CHUNK

WORDS: Final = ("done", "retry", "dead")
MOST_REASON: Final = 4000
"""So many characters are kept of why a message is dead."""
_WANTED: Final = ("queue", "claim", "verdict")
_OPTIONAL: Final = {"delay_ms": "bigint", "reason": "string"}
_LONGEST_MS: Final = MAX_SECONDS * 1000

Verdicts = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where verdicts of one lease are written down. Plain values: it is sent to workers."""

    place: Place
    source: str
    lease: str
    ns: str
    max_attempts: int = MAX_ATTEMPTS

    def plan(self, queue: str, claim: int, verdicts: Verdicts) -> Plan[None]:
        return _JUDGES[self.source](self, queue, claim, verdicts)


def _rsmq(bench: _Bench, queue: str, claim: int, verdicts: Verdicts) -> Plan[None]:
    # RSMQ has no place for why a message is to be tried again.
    plain = [(id, told.split(" ", 1)[0] if told[:1] == "r" else told) for id, told in verdicts]
    return rsmq_ops.judge(RsmqKeys(bench.ns), queue, bench.lease, claim, plain)


def _chasqui(bench: _Bench, queue: str, claim: int, verdicts: Verdicts) -> Plan[None]:
    most = bench.max_attempts
    return chasqui_ops.judge(queue, bench.lease, claim, verdicts, max_attempts=most)


_JUDGES: Final[dict[str, Callable[[_Bench, str, int, Verdicts], Plan[None]]]] = {
    "rsmq": _rsmq,
    "chasqui": _chasqui,
}
_NAMED_BY: Final = {"rsmq": "id", "chasqui": "entry_id"}


def settle(
    rows: DataFrame,
    *,
    lease: str,
    url: str = URL,
    source: str = "rsmq",
    ns: str = NAMESPACE,
    max_attempts: int = MAX_ATTEMPTS,
) -> int:
    """Write down what is to become of *rows*; how many are not done.

    They have the columns queue, claim and id (of ``chasqui``: entry_id) as they were read, and
    ``verdict``: ``done``, ``retry`` (after ``delay_ms``) or ``dead``; ``reason`` says why. Rows
    that are left out are done. *source* is the format they were read with: ``rsmq`` or
    ``chasqui``. A job of ``chasqui`` that has run *max_attempts* times, or as often as it says
    itself, is dead instead of retried.
    Raises `SettingsError` for columns that are missing; a verdict that is none fails the batch.
    """
    if source == "gomq":
        raise SettingsError(
            "GOMQ knows neither retries nor dead letters: a row is done with its batch; "
            "to have it again, write it with format 'gomq'"
        )
    if source not in _JUDGES:
        raise SettingsError(f"source must be one of {', '.join(_JUDGES)}, not {source!r}")
    name = _NAMED_BY[source]
    missing = [each for each in (*_WANTED, name) if each not in rows.columns]
    if missing:
        raise SettingsError(f"rows to settle have no column {', '.join(missing)}")
    columns = [*(f.col(each) for each in _WANTED), f.col(name).alias("id")]
    for each, kind in _OPTIONAL.items():
        column = f.col(each) if each in rows.columns else f.lit(None)
        columns.append(column.cast(kind).alias(each))
    bench = _Bench(Place(url), source, lease, ns, max_attempts)
    # Not by Arrow: PySpark wants pandas for that.
    counts = rows.select(columns).rdd.mapPartitions(partial(_written, bench)).collect()
    return sum(counts)


def _written(bench: _Bench, rows: Iterable[Row]) -> Iterator[int]:
    """Write down the verdicts of one task, a page at a time; how many are not done."""
    store = bench.place.open()
    others = 0
    pending = iter(rows)
    try:
        while page := list(islice(pending, CHUNK)):
            grouped: dict[tuple[str, int], list[tuple[str, str]]] = {}
            for row in page:
                verdict = _spelled(row)
                others += verdict != ""
                grouped.setdefault((row["queue"], row["claim"]), []).append((row["id"], verdict))
            for (queue, claim), verdicts in grouped.items():
                store.follow(bench.plan(queue, claim, verdicts))
    finally:
        store.close()
    yield others


def _spelled(row: Row) -> str:
    """Return a verdict as the ledger has it."""
    word, delay, reason = row["verdict"], row["delay_ms"] or 0, row["reason"] or ""
    if word == "done":
        return ""
    if word == "dead":
        return f"d{reason[:MOST_REASON]}"
    if word != "retry":
        raise InvalidValue("verdict", word, f"one of {', '.join(WORDS)}")
    if not 0 <= delay <= _LONGEST_MS:
        raise InvalidValue("delay_ms", delay, f"from 0 to {_LONGEST_MS}")
    return f"r{delay} {reason[:MOST_REASON]}".rstrip(" ")
