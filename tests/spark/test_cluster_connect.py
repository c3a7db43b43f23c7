"""Spark Connect: tables are read and written with what the client sends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import redis

from tambomq.rsmq import Rsmq
from tests.servers import Server
from tests.spark.clusters import MESSAGES, bare_python, connect_server, environment, fill, run

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = """\
import json, sys
from tambomq.errors import SettingsError
from tambomq.spark import session

address, url = sys.argv[1:]
spark = session("away", master=address)
assert session() is spark and session(master=address) is spark
found = {"kind": type(spark).__module__, "zone": spark.conf.get("spark.sql.session.timeZone")}
rows = spark.read.format("rsmq").options(url=url, queue="orders").load()
found["read"] = rows.where("state = 'visible'").count()
spark.sql(f"CREATE TEMPORARY VIEW v USING rsmq OPTIONS (url '{url}', queue 'orders')")
found["by SQL"] = spark.sql("SELECT * FROM v WHERE body = X'39'").count()
rows.select("body").write.format("rsmq").options(url=url, queue="copies").mode("append").save()

refused = []
for wish in (
    {"master": "sc://127.0.0.1:1"},
    {"master": "local[2]"},
    {"conf": {"spark.executor.memory": "3g"}},
    {"conf": {"spark.sql.shuffle.partitions": "many"}},
):
    try:
        session(**wish)
    except SettingsError as error:
        refused.append(str(error))
found["refused"] = refused
spark.stop()
print(json.dumps(found))
"""

STREAM = """\
import json, sys
from tambomq.spark import session

address, url, folder = sys.argv[1:]
spark = session("away", master=address)
rows = spark.readStream.format("rsmq").options(url=url, queue="orders", lease="job").load()
writer = rows.writeStream.format("parquet").option("path", f"{folder}/out")
writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
writer.start().awaitTermination()
print(json.dumps(spark.read.parquet(f"{folder}/out").count()))
spark.stop()
"""


def test_tables_are_read_and_written_on_a_server_without_the_package(
    rsmq: Rsmq, db: redis.Redis, server: Server, tmp_path: Path
) -> None:
    fill(rsmq, db)
    # Neither a Java nor its settings are wanted where the client is.
    env = environment(JAVA_HOME="/nowhere", PATH="")
    with connect_server(tmp_path, bare_python(tmp_path)) as address:
        code, out, err = run([sys.executable, "-c", JOB, address, server.url], tmp_path, env)
    assert code == 0, err
    found = json.loads(out)
    refused = found.pop("refused")
    assert found == {
        "kind": "pyspark.sql.connect.session",
        "zone": "UTC",
        "read": MESSAGES,
        "by SQL": 1,
    }
    assert rsmq.get_queue_attributes("copies").msgs == MESSAGES
    other, local, late, never = refused
    assert other == f"a session with {address[5:]} runs already: stop() it first"
    assert local == "a session by Spark Connect runs already: stop() it first"
    assert "spark.executor.memory cannot be changed" in late
    assert never.startswith("spark.sql.shuffle.partitions: ")


def test_streams_run_on_a_server_that_has_the_package(
    rsmq: Rsmq, db: redis.Redis, server: Server, tmp_path: Path
) -> None:
    fill(rsmq, db)
    with connect_server(tmp_path, Path(sys.executable)) as address:
        words = [sys.executable, "-c", STREAM, address, server.url, tmp_path]
        code, out, err = run(words, tmp_path, environment())
    assert code == 0, err
    assert json.loads(out) == MESSAGES
    assert rsmq.get_queue_attributes("orders").msgs == 0
