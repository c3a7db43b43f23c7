"""`settle`: stores verdicts on single rows of a leased stream; the batch's commit applies them.

It is called in ``foreachBatch``. A commit ends all messages of its batch as done, except those with
a stored verdict ``retry`` or ``dead``: the script that acknowledges the batch retries or
dead-letters these instead.

Verdicts are fenced: a row's column ``claim`` names the owner that read it, and the script refuses
verdicts of an owner that was replaced. When a new owner runs the batch again, verdicts of the
earlier run are deleted first (`LeasedReader.partitions`). If the batch was committed, they stay:
the new owner carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from tambomq.bulk.lease_model import CHUNK, LeaseRequest, OpenClaim
from tambomq.chasqui.bulk import lease_verdicts as chasqui_verdicts
from tambomq.chasqui.job import MAX_ATTEMPTS
from tambomq.errors import InvalidValue, SettingsError
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import NAMESPACE
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.model import MAX_SECONDS
from tambomq.spark.core.options import RedisTarget
from tambomq.store.call import Plan
from tambomq.store.endpoint import URL

VERDICTS: Final = ("done", "retry", "dead")
MAX_REASON: Final = 4000
"""Longer reasons of retries and dead letters are cut to this many characters."""
_REQUIRED_COLUMNS: Final = ("queue", "claim", "verdict")
_OPTIONAL_COLUMNS: Final = {"delay_ms": "bigint", "reason": "string"}
_MAX_DELAY_MS: Final = MAX_SECONDS * 1000

Verdicts = Sequence[tuple[str, str]]
"""Ids and encoded verdicts: ``r<ms> <reason>``, ``d<reason>``, or ``''`` for done."""


@dataclass(frozen=True, slots=True)
class VerdictWriter:
    """Writes verdicts on the claims of one lease. Plain values: it is pickled to workers."""

    target: RedisTarget
    source: str
    lease: str
    ns: str
    max_attempts: int = MAX_ATTEMPTS

    def plan(self, queue: str, claim: OpenClaim, verdicts: Verdicts) -> Plan[None]:
        """Return the calls that store *verdicts* on rows that were read from *claim*."""
        request = LeaseRequest(queue, self.lease, claim.owner)
        return _PLANS[self.source](self, request, claim, verdicts)


def _rsmq(
    writer: VerdictWriter, request: LeaseRequest, claim: OpenClaim, verdicts: Verdicts
) -> Plan[None]:
    # RSMQ stores no reason for a retry.
    plain = [(id, each.split(" ", 1)[0] if each[:1] == "r" else each) for id, each in verdicts]
    ops = RsmqLeaseOps(RsmqKeys(writer.ns))
    return ops.write_verdicts(request, claim.number, claim.claim_token, plain)


def _chasqui(
    writer: VerdictWriter, request: LeaseRequest, claim: OpenClaim, verdicts: Verdicts
) -> Plan[None]:
    return chasqui_verdicts.write_verdicts(
        *(request, claim.number, claim.claim_token, verdicts), max_attempts=writer.max_attempts
    )


_PLANS: Final[
    dict[str, Callable[[VerdictWriter, LeaseRequest, OpenClaim, Verdicts], Plan[None]]]
] = {"rsmq": _rsmq, "chasqui": _chasqui}
_ID_COLUMNS: Final = {"rsmq": "id", "chasqui": "entry_id"}


def settle(
    rows: DataFrame,
    *,
    lease: str,
    url: str = URL,
    source: str = "rsmq",
    ns: str = NAMESPACE,
    max_attempts: int = MAX_ATTEMPTS,
) -> int:
    """Write the verdicts on *rows* of a batch; return how many are not ``done``.

    *rows* have the columns queue, claim and id (for ``chasqui``: entry_id) as they were read, and
    ``verdict``: ``done``, ``retry`` (after ``delay_ms``) or ``dead``; ``reason`` says why. Rows
    that are left out are done. *source* is the format they were read with: ``rsmq`` or
    ``chasqui``. A ``chasqui`` job that has run *max_attempts* times (or its own limit) is
    dead-lettered instead of retried.
    Raises `SettingsError` for missing columns. An unknown verdict fails the batch, and so does
    `LeaseLost`, which is raised if this query was replaced meanwhile.
    """
    if source == "gomq":
        raise SettingsError(
            "GOMQ has neither retries nor dead letters: rows are done when their batch is "
            "committed; to process a row again, write it with format 'gomq'"
        )
    if source not in _PLANS:
        raise SettingsError(f"source must be one of {', '.join(_PLANS)}, not {source!r}")
    id_column = _ID_COLUMNS[source]
    missing = [each for each in (*_REQUIRED_COLUMNS, id_column) if each not in rows.columns]
    if missing:
        raise SettingsError(f"rows to settle have no column {', '.join(missing)}")
    columns = [*(f.col(each) for each in _REQUIRED_COLUMNS), f.col(id_column).alias("id")]
    for each, kind in _OPTIONAL_COLUMNS.items():
        column = f.col(each) if each in rows.columns else f.lit(None)
        columns.append(column.cast(kind).alias(each))
    writer = VerdictWriter(RedisTarget(url), source, lease, ns, max_attempts)
    # As an RDD, not with mapInArrow: PySpark needs pandas for that.
    counts = rows.select(columns).rdd.mapPartitions(partial(_write, writer)).collect()
    return sum(counts)


def _write(writer: VerdictWriter, rows: Iterable[Row]) -> Iterator[int]:
    """Write the verdicts of one task in pages; yield how many are not ``done``."""
    store = writer.target.open()
    not_done = 0
    pending = iter(rows)
    try:
        while page := list(islice(pending, CHUNK)):
            by_claim: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for row in page:
                verdict = _encode(row)
                not_done += verdict != ""
                by_claim.setdefault((row["queue"], row["claim"]), []).append((row["id"], verdict))
            for (queue, claim), verdicts in by_claim.items():
                store.follow(writer.plan(queue, OpenClaim.parse(claim), verdicts))
    finally:
        store.close()
    yield not_done


def _encode(row: Row) -> str:
    """Return a row's verdict as in `Verdicts`."""
    verdict, delay, reason = row["verdict"], row["delay_ms"] or 0, row["reason"] or ""
    if verdict == "done":
        return ""
    if verdict == "dead":
        return f"d{reason[:MAX_REASON]}"
    if verdict != "retry":
        raise InvalidValue("verdict", verdict, f"one of {', '.join(VERDICTS)}")
    if not 0 <= delay <= _MAX_DELAY_MS:
        raise InvalidValue("delay_ms", delay, f"from 0 to {_MAX_DELAY_MS}")
    return f"r{delay} {reason[:MAX_REASON]}".rstrip(" ")
