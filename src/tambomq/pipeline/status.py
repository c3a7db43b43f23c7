"""The state of the pipeline for people who look: lake, lag, batches, leases, journals. No Spark.

Reads the log of the lake and a few small files with pyarrow, and starts no Java. It takes some
round trips and looks through the keys of the server: share its result, and refresh it every ten
seconds or less often.
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tambomq.chasqui import keys as chasqui_keys
from tambomq.console.model import LakeTable, PipelineStatus, Series, WorkerRow
from tambomq.errors import LocalProtocolError, SettingsError, StoreError, TamboError
from tambomq.extras import how_to_install
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.log import mask_url
from tambomq.pipeline.gold_series import GOLD_TABLE, gold_series
from tambomq.pipeline.lake.log import LakeVersion, LogEntry, TableLog
from tambomq.pipeline.leases import LeaseDirectory
from tambomq.rsmq.keys import NAMESPACE
from tambomq.spark.tail import offsets as tail_offsets
from tambomq.store.call import Call
from tambomq.store.sync import Store

MAX_ROWS: Final = 500
"""At most so many leases, journals and streams are read."""
_MAX_PAGES: Final = 200
_BATCHES: Final = 20
_ENTRIES: Final = 200
"""Entries of the log that are read for the last batches."""
_LOG: Final = "_log"
_MARKER: Final = "lake.json"


def pipeline_status(lake: Path | None, store: Store, *, rsmq_ns: str = NAMESPACE) -> PipelineStatus:
    """Return the state of the pipeline; what cannot be read is missing, and a note says why.

    Blocks: call it from a thread. *lake* need not exist. *store* should give up soon.
    """
    notes: list[str] = []
    leases, journals = _read_redis(store, rsmq_ns, notes)
    if lake is None or not (lake / _MARKER).is_file():
        notes.insert(0, _no_lake(lake))
        return PipelineStatus(lake=None, leases=leases, journals=journals, note=" ".join(notes))
    log = TableLog(lake / _LOG)
    try:
        version, entries = log.version(), log.last_entries(_ENTRIES)
    except (TamboError, OSError) as error:
        notes.append(f"The lake cannot be read: {error}.")
        return PipelineStatus(
            lake=str(lake), leases=leases, journals=journals, note=" ".join(notes)
        )
    return PipelineStatus(
        lake=str(lake),
        tables=_tables(version, entries),
        lag_s=_lag_s(version, store, notes),
        batches=_batches(entries),
        gold=_gold(lake, version, notes),
        leases=leases,
        journals=journals,
        note=" ".join(notes),
    )


def _no_lake(lake: Path | None) -> str:
    at = f" at {lake.absolute()}" if lake else ""
    return f"There is no lake{at}: `tambo pipeline run` makes one and fills it."


def _tables(version: LakeVersion, entries: list[LogEntry]) -> list[LakeTable]:
    newest = {table: entry.at_ms for entry in entries for table in entry.add}
    return [
        LakeTable(
            name=table,
            files=len(files),
            size_bytes=sum(file.bytes for file in files.values()),
            rows=sum(file.rows for file in files.values()),
            newest_ms=newest.get(table),
        )
        for table, files in sorted(version.files.items())
    ]


def _batches(entries: list[LogEntry]) -> list[tuple[int, int, str]]:
    """Return the last batches, newest first, with the rows of the table that got most."""
    found: list[tuple[int, int, str]] = []
    for entry in reversed(entries):
        if entry.batch is not None and entry.add:
            rows = {table: sum(file.rows for file in files) for table, files in entry.add.items()}
            # Bronze has every row that was read; other tables have what became of them.
            table = "bronze" if "bronze" in rows else max(rows, key=lambda name: rows[name])
            found.append((entry.at_ms, rows[table], table))
    return found[:_BATCHES]


def _lag_s(version: LakeVersion, store: Store, notes: list[str]) -> float | None:
    """Return how far the pipeline is behind the stream that it is furthest behind."""
    names = [name for name in islice(version.offset, MAX_ROWS) if _last_id(name) is not None]
    if not names:
        return None
    outcomes = store.outcomes([call for name in names if (call := _last_id(name)) is not None])
    latest = {
        name: {"id": id}
        for name, id in zip(names, outcomes, strict=True)
        if isinstance(id, str) and id
    }
    try:
        return tail_offsets.lag_ms(version.offset, latest) / 1000
    except (ValueError, KeyError, TypeError):
        notes.append("The offsets of the lake cannot be read.")
        return None


def _last_id(stream: str) -> Call[str | None] | None:
    """Return the call for the last entry of a stream that the pipeline follows."""
    protocol, _, rest = stream.partition(":")
    source, _, queue = rest.partition(":")
    try:
        if source == "journal":
            return journal_ops.last_id(JournalKeys(protocol, queue))
        keys = chasqui_keys.Keys(queue)
    except LocalProtocolError:
        return None
    key = keys.dlq if source == "dlq" else keys.events
    return Call("XREVRANGE", (key,), ("+", "-", "COUNT", 1), _edge, repeatable=True)


def _edge(reply: list[Any]) -> str | None:
    return reply[0][0].decode() if reply else None


def _gold(lake: Path, version: LakeVersion, notes: list[str]) -> Series | None:
    try:
        files = [lake / file.path for file in version.of(GOLD_TABLE)]
        return gold_series(files, int(time.time() * 1000))
    except ModuleNotFoundError:
        notes.append(f"Charts need pyarrow: {how_to_install('spark')}.")
    except (OSError, ValueError) as error:
        # A compaction may have removed a file since the log was read: the next look has others.
        notes.append(f"The table {GOLD_TABLE} cannot be read: {error}.")
    return None


def _read_redis(
    store: Store, ns: str, notes: list[str]
) -> tuple[list[WorkerRow], list[tuple[str, int, int]]]:
    try:
        return _leases(store, ns), _journals(store)
    except (StoreError, SettingsError) as error:
        notes.append(f"Leases and journals are unknown: {mask_url(str(error))}.")
        return [], []


def _leases(store: Store, ns: str) -> list[WorkerRow]:
    known = LeaseDirectory(store, ns=ns)
    now_ms = int(time.time() * 1000)
    try:
        return [
            WorkerRow(
                queue=str(each.address),
                id=each.lease.name,
                kind="lease",
                alive=each.lease.state == "held",
                holds=each.lease.size,
                lease_s=max(0, each.lease.until_ms - now_ms) / 1000,
                note=f"{each.lease.state}: {each.lease.holder or 'no holder'}",
            )
            for each in islice(known.all(), MAX_ROWS)
        ]
    finally:
        known.close()


def _journals(store: Store) -> list[tuple[str, int, int]]:
    found: list[JournalKeys] = []
    cursor = b"0"
    for _ in range(_MAX_PAGES):
        cursor, some = store.run(journal_ops.journals(cursor))
        found += some
        if cursor == b"0" or len(found) >= MAX_ROWS:
            break
    unique = sorted({(each.protocol, each.queue): each for each in found}.items())[:MAX_ROWS]
    states = store.outcomes([journal_ops.state(keys) for _, keys in unique])
    return [
        (f"{protocol}:{queue}", state.entries, _unread(state))
        for ((protocol, queue), _), state in zip(unique, states, strict=True)
        if isinstance(state, journal_ops.State)
    ]


def _unread(state: journal_ops.State) -> int:
    """Return how many entries the slowest reader has not committed, estimated by their size."""
    if not state.readers:
        return state.entries
    if all(each.committed == state.last for each in state.readers):
        return 0
    lag_bytes = max(each.lag_bytes for each in state.readers)
    share = min(1.0, lag_bytes / state.bytes) if state.bytes else 1.0
    return round(state.entries * share)
