"""Rows become entries of a journal, and are read back as they were written."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pyarrow as pa
import pytest
import redis

from tambomq.clock import now_ms
from tambomq.errors import LocalProtocolError, SettingsError
from tambomq.journal.keys import JournalKeys
from tambomq.spark.core.table import ColumnBounds
from tambomq.spark.formats.tambo.tables import JournalTable
from tambomq.spark.sink.writer import StreamWriter
from tambomq.store.sync import Store
from tests.chasqui.stored import rows as entries
from tests.servers import Server
from tests.spark.sinking import Context, sink, stream, table

NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 123_000, dt.UTC)
TIME = pa.timestamp("us", tz="UTC")


def read(server: Server, queue: str = "q", protocol: str = "rsmq") -> list[dict[str, Any]]:
    """The journal as the format's table has it."""
    store, journal = Store(server.url), JournalTable(protocol)
    try:
        [part] = journal.cut(store, queue, ColumnBounds(), 1)
        return [row for b in journal.read(store, part, ColumnBounds()) for row in b.to_pylist()]
    finally:
        store.close()


def test_written_journal_entries_can_be_read_back(server: Server) -> None:
    rows = table(
        body=[b"\xff\x00", b"", None],
        event=["sent", "received", "dead"],
        id=["a", None, "c"],
        at=([NOON, NOON + dt.timedelta(hours=1), NOON], TIME),
        name=["mail", None, None],
        delay_ms=[None, 0, 2**63 - 1],
    )
    done = stream("tambo", rows, url=server.url, queue="q")
    assert (done.written, done.queues) == (3, {"q"})
    found = read(server)
    assert [{name: row[name] for name in rows.column_names} for row in found] == rows.to_pylist()
    assert {(row["protocol"], row["queue"]) for row in found} == {("rsmq", "q")}


def test_a_row_without_a_delay_is_sent_now(server: Server, db: redis.Redis) -> None:
    before = now_ms()
    rows = table(body=["a", "b"], event=([None, ""], pa.string()), at=([None, NOON], TIME))
    stream("tambo", rows, url=server.url, queue="q")
    first, second = read(server)
    assert [row["event"] for row in (first, second)] == ["sent", "sent"]
    assert before <= first["at"].timestamp() * 1000 <= now_ms() + 1
    assert second["at"] == NOON
    stream("tambo", table(body=["a"]), url=server.url, queue="p")
    [(_, fields)] = entries(db, JournalKeys("rsmq", "p").journal)
    assert fields[::2] == [b"e", b"ts", b"d"]


def test_an_attempt_and_a_reason_are_fields_of_their_own(server: Server, db: redis.Redis) -> None:
    rows = table(body=["a", "b"], attempt=[3, None], reason=[None, "no use"])
    stream("tambo", rows, url=server.url, queue="q")
    found = [fields for _, fields in entries(db, JournalKeys("rsmq", "q").journal)]
    assert found[0][4:] == [b"a", b"3", b"d", b"a"]
    assert found[1][4:] == [b"r", b"no use", b"d", b"b"]


def test_rows_go_to_the_journals_of_their_queues(server: Server) -> None:
    rows = table(body=["a", "b", "c"], queue=["p", None, "p"])
    stream("tambo", rows, url=server.url, queue="q", protocol="kqueue")
    assert [row["body"] for row in read(server, "p", "kqueue")] == [b"a", b"c"]
    assert [row["body"] for row in read(server, "q", "kqueue")] == [b"b"]


def test_a_task_that_is_run_again_writes_nothing_again(server: Server) -> None:
    rows = table(
        body=[str(n) for n in range(2500)], id=[None if n % 3 else "x" for n in range(2500)]
    )
    assert stream("tambo", rows, url=server.url, queue="q").written == 2500
    assert stream("tambo", rows, url=server.url, queue="q").repeated == 2500
    assert [row["body"] for row in read(server)] == [b"%d" % n for n in range(2500)]


def test_a_commit_forgets_the_batches_before_it(server: Server, db: redis.Redis) -> None:
    rows = table(body=["a"])
    for number in range(3):
        context = Context(batch=number)
        done = stream("tambo", rows, context, url=server.url, queue="q")
        made = sink("tambo", rows, url=server.url, queue="q")
        StreamWriter(made, context).commit([done], number)
    fence = JournalKeys("rsmq", "q").fence("query")
    assert set(cast("Any", db.hkeys(fence))) == {b"2/0/0", b"floor"}


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"at": ([NOON, dt.datetime(1969, 1, 1, tzinfo=dt.UTC)], TIME)}, "row 1: at must be"),
        ({"delay_ms": [1, -1]}, "row 1: delay_ms must be a whole number from 0 on"),
        ({"attempt": [1, -1]}, "row 1: attempt must be"),
        ({"queue": ["q", ""]}, "row 1: queue is null or empty"),
    ],
)
def test_a_row_too_large_for_a_journal_is_reported(
    server: Server, db: redis.Redis, columns: dict[str, Any], fault: str
) -> None:
    rows = table(body=["a", "b"], **columns)
    with pytest.raises(LocalProtocolError, match=fault):
        stream("tambo", rows, url=server.url, queue="q")
    assert db.keys() == []
    done = stream("tambo", rows, url=server.url, queue="q", onError="skip")
    assert (done.written, done.skipped) == (1, 1)


def test_a_valid_protocol_is_required() -> None:
    rows = table(body=["a"])
    with pytest.raises(SettingsError, match="protocol must be one of rsmq, chasqui, gomq, kqueue"):
        sink("tambo", rows, queue="q", protocol="amqp")
    with pytest.raises(SettingsError, match="the option protocol is missing"):
        sink("tambo", rows, queue="q", protocol="")
