"""Spark's own declarative pipelines read journals and dead letters, as the guide says they do."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.spark.launch import java
from tests.pipeline.dying_letters import add_dead_letters
from tests.servers import Server
from tests.spark.clusters import environment, run

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/declarative"
GUIDE = ROOT / "docs/guides/pipeline.md"
COMMAND = "spark-pipelines --conf spark.sql.catalogImplementation=hive run"

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_run_adds_what_is_new_once(server: Server, db: redis.Redis, tmp_path: Path) -> None:
    assert COMMAND in GUIDE.read_text("utf-8")
    home = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, home)
    spec = (home / "spark-pipeline.yml").read_text("utf-8")
    storage = "file:///tmp/tambo-declarative"
    assert storage in spec
    (home / "spark-pipeline.yml").write_text(spec.replace(storage, (tmp_path / "at").as_uri()))
    with Rsmq(server.url, journal=["orders"]) as rsmq:
        rsmq.create_queue("orders")
        for turn in (1, 2):
            rsmq.send_messages("orders", [b"one", b"two", b"three"])
            taken = rsmq.receive_message("orders", vt=600)
            assert taken is not None
            rsmq.delete_message("orders", taken.id)
            add_dead_letters(db, 4, first=4 * turn)
            ran(server, home)
            expected = {"sent": 3 * turn, "received": turn, "deleted": turn}
            entries = rows(home, "orders")
            assert Counter(row["event"] for row in entries) == expected
            assert len({row["entry_id"] for row in entries}) == 5 * turn
            assert {row["event"]: row["count"] for row in rows(home, "happened")} == expected
            dead = sorted(int(row["id"].removeprefix("job-")) for row in rows(home, "dead_letters"))
            assert dead == [*range(4, 4 + 4 * turn)]


def ran(server: Server, home: Path) -> None:
    """Run the pipeline as the guide describes."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = environment(PATH=path, JAVA_HOME=java.home(os.environ), REDIS_URL=server.url)
    code, out, err = run(shlex.split(COMMAND), home, env)
    assert (code, "Run is COMPLETED" in out + err) == (0, True), (out + err)[-3000:]


def rows(home: Path, table: str) -> list[dict[str, Any]]:
    """Return what a table has: its files are those that Spark's catalogue points at."""
    files = (home / "spark-warehouse" / table).glob("*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]
