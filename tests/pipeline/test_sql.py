"""SQL over queues as they are, and over the lake."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from tambomq.chasqui import BlockingQueue
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import sql as pipeline_sql
from tambomq.errors import SettingsError
from tambomq.pipeline import sql as views
from tambomq.pipeline.lake.lake import Lake
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.servers import Server

Run = Callable[..., Done]


@pytest.fixture
def run(spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, with the session of all tests."""
    monkeypatch.setattr(pipeline_sql, "open_spark", lambda *_, **__: spark)
    return partial(call, tambo, "tambo", "pipeline", "sql", url=server.url)


@pytest.fixture
def orders(rsmq: Rsmq) -> Rsmq:
    rsmq.create_queue("orders")
    rsmq.send_messages("orders", [b"apples", b"pears", b"\xff"])
    return rsmq


def test_only_views_that_are_named_are_made() -> None:
    text = "SELECT * FROM rsmq_messages JOIN Gold ON x = 'chasqui_dlqs'"
    assert views.wanted(text) == ["rsmq_messages", "gold"]
    assert views.needs_lake(text)
    assert not views.needs_lake("SELECT 1 FROM chasqui_dlq")


def test_every_view_has_its_columns() -> None:
    assert [name for name, columns in views.columns_of() if not columns] == []
    assert [name for name, _ in views.columns_of()] == list(views.NAMES)


def test_queues_can_be_queried(run: Run, orders: Rsmq, server: Server) -> None:
    with BlockingQueue("mail", redis_url=server.url) as queue:
        queue.add("welcome", {})
    done = run("SELECT id, queue, body FROM rsmq_messages ORDER BY body", "--json")
    assert [row["body"] for row in json.loads(done.out)] == ["apples", "pears", {"base64": "/w=="}]
    both = "SELECT (SELECT count(*) FROM rsmq_messages) + (SELECT count(*) FROM chasqui_jobs) AS n"
    assert json.loads(run(both, "--json").out) == [{"n": 4}]
    assert json.loads(run(both, "--json", "--queue", "orders").out) == [{"n": 3}]


def test_rows_are_shown_as_a_table_and_as_csv(run: Run, orders: Rsmq) -> None:
    text = "SELECT queue, decode(body, 'UTF-8') AS body, rc IS NULL AS new FROM rsmq_messages"
    text += " WHERE length(body) > 1 ORDER BY body"
    assert run(text).out.splitlines()[0].split() == ["queue", "body", "new"]
    rows = list(csv.reader(io.StringIO(run(text, "--csv").out)))
    assert [row[:2] for row in rows] == [
        ["queue", "body"],
        ["orders", "apples"],
        ["orders", "pears"],
    ]


def test_a_note_says_there_are_more_rows(run: Run, orders: Rsmq) -> None:
    done = run("SELECT id FROM rsmq_messages", "--limit", "2", "--json")
    assert len(json.loads(done.out)) == 2
    assert "there is more" in done.err


def test_a_query_without_rows_is_exit_3(run: Run, orders: Rsmq) -> None:
    assert run("SELECT * FROM rsmq_messages WHERE rc > 100").code == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT * FROM nowhere", "rsmq_messages, rsmq_queues"),
        ("SELECT nothing FROM rsmq_queues", "nothing"),
        ("SELECT\n  1 +", "line 2"),
    ],
)
def test_wrong_sql_is_one_line(run: Run, orders: Rsmq, text: str, expected: str) -> None:
    done = run(text)
    assert done.code == 2
    assert expected in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_an_error_in_a_row_is_printed_in_one_line(run: Run, orders: Rsmq) -> None:
    done = run("SELECT CAST(id AS INT) / 0 FROM rsmq_messages")
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


def test_a_table_of_the_lake_needs_a_lake(
    spark: SparkSession, server: Server, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(SettingsError, match="--lake"):
        views.ask(spark, views.QueryScope(server.url), "SELECT * FROM silver")
    none = tmp_path_factory.mktemp("none") / "lake"
    assert "tambo pipeline run" in run("SELECT * FROM silver", "--lake", str(none)).err


@pytest.mark.slow
def test_an_empty_lake_has_empty_tables(run: Run, lake: Lake) -> None:
    for table in ("bronze", "silver", "gold", "late"):
        done = run(f"TABLE {table} LIMIT 1", "--lake", str(lake.path), "--json")
        assert json.loads(done.out) == [], done.err


def test_the_tables_and_their_columns_are_listed(run: Run) -> None:
    assert "chasqui_dlq" in run("--tables").out
    assert "reason" in json.loads(run("--tables", "--json").out)["chasqui_dlq"]


def test_the_command_requires_sql(run: Run) -> None:
    assert "--tables" in run().err
    assert "not both" in run("SELECT 1", "--csv", "--json").err
