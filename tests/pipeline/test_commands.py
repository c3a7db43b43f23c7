"""``tambo pipeline run`` and ``compact``, as far as no Spark is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tambomq.cli.main import PROG, tambo
from tambomq.cli.output import NOTHING, OK, USAGE, run
from tambomq.pipeline.lake.lake import Lake
from tests.servers import Server


def tambo_pipeline(*args: str) -> int:
    return run(tambo, PROG, ["pipeline", *args])


def test_an_invalid_queue_name_is_reported_in_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tambo_pipeline("run", "--queue", "nats:x", "--redis-url", server.url)
    assert code == USAGE
    assert capsys.readouterr().err.startswith("tambo: 'nats:x' can match no queue: write rsmq:NAME")


def test_a_single_run_without_matching_queues_says_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--redis-url", server.url, "--lake", str(tmp_path / "lake"))
    assert tambo_pipeline("run", "--once", "--queue", "rsmq:*", *options) == NOTHING
    assert "no queue of rsmq:* with events or a journal" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "redis://127.0.0.1:1"
    assert tambo_pipeline("run", "--once", "--redis-url", url) == 1
    assert "is it running?" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--every", "soon"), ("--batch-rows", "1"), ("--on-loss", "x")])
def test_options_that_make_no_sense_are_refused(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tambo_pipeline("run", *option) == USAGE
    assert option[0] in capsys.readouterr().err


def test_compact_reports_what_it_did(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert tambo_pipeline("compact", "--lake", str(lake.path), "--retain", "30d") == OK
    assert "0 small files merged into 0." in capsys.readouterr().out
    assert tambo_pipeline("compact", "--lake", str(lake.path), "--json") == OK
    assert json.loads(capsys.readouterr().out)["merged"] == 0


def test_compact_does_not_create_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tambo_pipeline("compact", "--lake", str(tmp_path / "lake")) == USAGE
    assert "there is no lake at" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["1h", "0d", "many"])
def test_only_whole_days_are_kept(
    lake: Lake, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tambo_pipeline("compact", "--lake", str(lake.path), "--retain", days) == USAGE
    assert repr(days) in capsys.readouterr().err
