"""The state of the pipeline, read without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui import BlockingQueue
from tambomq.journal import JournalReader
from tambomq.pipeline.gold_series import GOLD_TABLE, gold_series
from tambomq.pipeline.lake.log import LakeFile, LogEntry, TableLog
from tambomq.pipeline.status import pipeline_status
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.store.sync import Store
from tests.servers import Server

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
NOW_MS = int(NOW.timestamp() * 1000)


def gold_file(lake: Path, *rows: tuple[datetime, int, int, int, int], name: str = "a") -> LakeFile:
    """Write a file of gold into the folder of today."""
    path = Path(GOLD_TABLE) / f"date={NOW:%Y-%m-%d}" / f"{name}.parquet"
    (lake / path).parent.mkdir(parents=True, exist_ok=True)
    names = ("minute", "entered", "done", "failed", "dead")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    table = pa.table({**columns, "minute": pa.array(columns["minute"], pa.timestamp("us", "UTC"))})
    pq.write_table(table, lake / path)
    return LakeFile(str(path), len(rows), (lake / path).stat().st_size)


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    made = Store(server.url)
    yield made
    made.close()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with two batches."""
    made = tmp_path / "lake"
    (made / "_log").mkdir(parents=True)
    (made / "lake.json").write_text('{"kind": "tambomq lake", "format": 1, "id": "x"}')
    gold = gold_file(made, (NOW, 5, 3, 1, 1), (NOW, 2, 2, 0, 0))
    log = TableLog(made / "_log")
    bronze = LakeFile("bronze/a.parquet", 7, 700)
    first = {"chasqui:events:mails": {"id": "1-1"}}
    log.commit(LogEntry(at_ms=1000, by="q", batch=0, add={"bronze": [bronze]}, offset=first))
    more = {"bronze": [LakeFile("bronze/b.parquet", 3, 300)], GOLD_TABLE: [gold]}
    log.commit(LogEntry(at_ms=2000, by="q", batch=1, add=more))
    log.commit(LogEntry(at_ms=3000, by="compact"))
    return made


def test_tables_batches_and_chart_come_from_the_lake(lake: Path, store: Store) -> None:
    status = pipeline_status(lake, store)
    tables = {table.name: (table.files, table.rows, table.newest_ms) for table in status.tables}
    assert tables == {"bronze": (2, 10, 2000), GOLD_TABLE: (1, 2, 2000)}
    assert status.batches == [(2000, 3, "bronze"), (1000, 7, "bronze")]
    assert status.gold is not None
    assert {line: sum(filter(None, values)) for line, values in status.gold.values.items()} == {
        "in": 7.0,
        "out": 5.0,
        "failed": 1.0,
        "dead": 1.0,
    }
    assert (status.lake, status.note) == (str(lake), "")


def test_lag_is_that_of_the_stream_furthest_behind(
    lake: Path, server: Server, store: Store
) -> None:
    assert pipeline_status(lake, store).lag_s == 0
    with BlockingQueue("mails", redis_url=server.url) as queue:
        queue.add("send", 1, delay_ms=60_000)
    lag_s = pipeline_status(lake, store).lag_s
    assert lag_s is not None
    assert lag_s > 1_000_000, "the last offset is from 1970"


def test_leases_and_journals_come_from_redis(server: Server, store: Store) -> None:
    with Rsmq(server.url, journal=("q",)) as rsmq:
        rsmq.create_queue("q")
        rsmq.send_messages("q", [b"a", b"b", b"c"])
    request = LeaseRequest("q", "nightly", "token", "process 1 on here")
    store.run(RsmqLeaseOps(Keys()).attach(request))
    store.follow(RsmqLeaseOps(Keys()).claim(request, 1, "token", 2))
    status = pipeline_status(None, store)
    assert status.lake is None
    assert "`tambo pipeline run` makes one" in status.note
    (lease,) = status.leases
    assert (lease.queue, lease.id, lease.kind, lease.alive, lease.holds) == (
        "rsmq:q", "nightly", "lease", True, 2
    )  # fmt: skip
    ((queue, entries, unread),) = status.journals
    assert (queue, unread) == ("rsmq:q", entries)
    with JournalReader(server.url, "rsmq", "q", name="me") as reader:
        last = reader.last_id()
        assert last is not None
        reader.commit(last)
    assert [each[2] for each in pipeline_status(None, store).journals] == [0]


def test_server_that_is_away_and_a_damaged_lake_are_notes(lake: Path) -> None:
    store = Store("redis://127.0.0.1:1", patience_s=0)
    status = pipeline_status(lake, store)
    assert status.tables
    assert status.note.startswith("Leases and journals are unknown: cannot reach")
    (lake / "_log" / "000000000002.json").write_text("{")
    assert "The lake cannot be read" in pipeline_status(lake, store).note


def test_missing_file_of_gold_is_a_note(lake: Path, store: Store) -> None:
    next((lake / GOLD_TABLE).rglob("*.parquet")).unlink()
    status = pipeline_status(lake, store)
    assert status.gold is None
    assert status.note.startswith(f"The table {GOLD_TABLE} cannot be read")


def test_minutes_outside_of_the_chart_are_left_out(lake: Path) -> None:
    old = lake / gold_file(lake, (NOW - timedelta(hours=4), 9, 9, 9, 9), name="old").path
    assert gold_series([old], NOW_MS) is None
    new = next((lake / GOLD_TABLE).rglob("a.parquet"))
    found = gold_series([old, new], NOW_MS)
    assert found is not None
    assert (len(found.times_ms), found.values["in"][-1]) == (180, 7.0)


@pytest.mark.parametrize("missing", ["pyarrow", "pyspark"])
def test_extra_that_is_not_installed_is_said_or_not_needed(missing: str, lake: Path) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from pathlib import Path
from tambomq.pipeline.status import pipeline_status
from tambomq.store.sync import Store
status = pipeline_status(Path({str(lake)!r}), Store("redis://127.0.0.1:1", patience_s=0))
print(len(status.tables), status.gold is None, "Charts need pyarrow" in status.note)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    is_missing = missing == "pyarrow"
    assert done.stdout.split() == ["2", str(is_missing), str(is_missing)]
