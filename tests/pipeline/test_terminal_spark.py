"""Commands that start Spark, on a terminal: what is seen meanwhile, and that Ctrl-C ends them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tambomq.pipeline.lake.lake import BRONZE, Lake
from tests.pipeline.dying_letters import JOBS, add_dead_letters, dead, ids, waiting
from tests.pipeline.terminal import CTRL_C, sitting
from tests.pipeline.workload import Workload
from tests.servers import Server

# Each starts Spark.
pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

NARROW = 60
ENDS_ON = 130


def test_a_pipeline_shows_one_line_and_ends_in_order(server: Server, tmp_path: Path) -> None:
    traffic = Workload(server.url)
    traffic.fill(60)
    traffic.close()
    rows = sum(lifecycle.events for lifecycle in traffic.lifecycles)
    lake = tmp_path / "lake"
    words = ("run", "--lake", str(lake), "--every", "1s", "--master", "local[1]")
    with sitting(server.url, *words, columns=NARROW) as terminal:
        terminal.until("starting Spark …")
        terminal.until("waiting for the first batch …")
        terminal.until(rf"{rows} rows in [\d.]+ s .*lag")
        (line,) = terminal.lines
        assert len(line) <= NARROW
        terminal.press(CTRL_C)
        assert terminal.end() == 0
        *_, last, closing, rest = terminal.lines
        drawn = terminal.drawn
    assert re.fullmatch(rf"batch 0  ·  {rows} rows in .*{rows} rows in the lake", last)
    assert (closing, rest) == (f"ended after 1 batch with {rows} rows", "")
    assert "Traceback" not in drawn
    assert sum(file.rows for file in Lake.open(lake).log.version().of(BRONZE)) == rows


def test_an_interrupt_while_spark_starts_ends_the_command(server: Server, tmp_path: Path) -> None:
    lake = ("--lake", str(tmp_path / "lake"), "--master", "local[1]")
    with sitting(server.url, "run", *lake) as terminal:
        terminal.until("starting Spark …")
        terminal.press(CTRL_C)
        assert terminal.end() == ENDS_ON
        assert "Traceback" not in terminal.drawn
        assert "Exception" not in terminal.drawn


def test_an_interrupted_redrive_prints_how_to_resume(server: Server, db: redis.Redis) -> None:
    everyone = ids(add_dead_letters(db, 1000))
    words = ("dlq", "redrive", "chasqui:orders", "--rate", "50/s", "--master", "local[1]")
    with sitting(server.url, *words, columns=NARROW) as terminal:
        terminal.until(r"moving .* \d+% .*[1-9]\d* letters")
        assert max(map(len, terminal.lines)) <= NARROW
        terminal.press(CTRL_C)
        assert terminal.end() == ENDS_ON
        lines, drawn = terminal.lines, terminal.drawn
    (redrive_id,) = re.findall(r"redrive chasqui:orders/(\w+): 1000 letters", lines[0])
    assert db.smembers(JOBS.redrives) == {redrive_id.encode()}
    assert ("Traceback" in drawn, "Exception" in drawn) == (False, False)
    assert [id for id, _, _ in waiting(db)] + ids(dead(db)) == everyone
