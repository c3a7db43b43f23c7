"""A session that works from the start, keeps passwords to itself and obeys its caller."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway
from pyspark.sql import SparkSession

from tambomq.errors import SettingsError
from tambomq.extras import how_to_install
from tambomq.rsmq import Rsmq
from tambomq.spark import session
from tambomq.spark.launch import session as driver
from tests.servers import Server, binaries

PASSWORD = "hush/hush@home"
AS_WRITTEN = "hush%2Fhush@home"

# One start of Spark for all that has to be looked at from outside.
JOB = """\
import os, sys
from pathlib import Path
from tambomq.spark import session

url, logs = sys.argv[1:]
before = dict(os.environ)
conf = {
    "spark.eventLog.enabled": True,
    "spark.eventLog.dir": logs,
    "spark.eventLog.compress": False,
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.tambo.note": f"seen at {url}",
}
spark = session("job", master="local[1]", conf=conf)
print("app:", spark.sparkContext.appName)
print("zone:", spark.conf.get("spark.sql.session.timeZone"))
print("default of the file:", spark.conf.get("spark.sql.shuffle.partitions"))
print("level of the file:", spark.conf.get("spark.log.level"))
print("python:", sys.executable in Path(os.environ["PYSPARK_PYTHON"]).read_text())
started = ("JAVA_HOME", "SPARK_SUBMIT_OPTS")
print("left behind:", [k for k in started if os.environ.get(k) != before.get(k)])

rows = spark.read.format("rsmq").options(url=url, queue="orders").load()
print("rows:", rows.where("state = 'visible'").count())
rows.explain("extended")
spark.sql(f"CREATE TEMPORARY VIEW v USING rsmq OPTIONS (url '{url}', queue 'orders')")
spark.sql("EXPLAIN EXTENDED SELECT * FROM v").show(truncate=False)
print("rows:", spark.table("v").count())
spark.stop()
"""

REFUSED = """\
from tambomq.errors import SettingsError
from tambomq.extras import how_to_install
from tambomq.spark import session

for what, wish in (
    ("memory", {"master": "local[1]", "conf": {"spark.driver.memory": "much"}}),
    ("master", {"master": "local[few]"}),
):
    try:
        session(**wish)
    except SettingsError as error:
        print(f"{what}: {error}")
"""


def test_times_are_utc_and_filters_are_pushed_down(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_run_on_the_python_of_the_driver(spark: SparkSession) -> None:
    def prefix(_: object) -> list[str]:
        return [sys.prefix]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(prefix).collect() == [sys.prefix]


def test_a_running_session_is_reused_and_gets_the_configuration(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        name = spark.sparkContext.appName
        assert session("another", conf={"spark.sql.shuffle.partitions": 3}) is spark
        assert spark.sparkContext.appName == name
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", 2)


def test_settings_that_a_running_session_cannot_change_are_refused_in_one_line(
    spark: SparkSession,
) -> None:
    here = spark.sparkContext.master
    assert session(master=here, conf={"spark.master": here}) is spark
    with pytest.raises(SettingsError, match=r"a session on local\[2\] runs already"):
        session(master="local[1]")
    with pytest.raises(SettingsError, match="a session without Spark Connect runs already"):
        session(master="sc://127.0.0.1:1")
    late = {"spark.executor.memory": "3g", "spark.sql.warehouse.dir": "hush"}
    with pytest.raises(SettingsError, match=r"executor\.memory, .*warehouse\.dir cannot") as caught:
        session(conf=late)
    assert "hush" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"^spark\.sql\.shuffle\.partitions: [^\n]*$"):
        session(conf={"spark.sql.shuffle.partitions": "many"})


def test_importing_the_package_does_not_import_spark() -> None:
    check = "import sys, tambomq.spark; sys.exit('pyspark' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_without_pyspark_the_error_says_what_to_install() -> None:
    check = "import sys; sys.modules['pyspark'] = None; from tambomq.spark import session"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert f"SettingsError: Spark is not installed: {how_to_install('spark')}" in done.stderr


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="sessions"):
        importlib.import_module("tambomq.spark").sessions  # noqa: B018  (that it is asked is enough)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_session_logs_no_password_and_keeps_the_settings_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "conf").mkdir()
    defaults = "spark.sql.shuffle.partitions 7\nspark.log.level=WARN\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    with Server(binaries.valkey(), password=PASSWORD) as server:
        url = f"redis://:{AS_WRITTEN}@127.0.0.1:{server.port}"
        with Rsmq(url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.send_messages("orders", ["one", "two"])
        said = run(tmp_path, url, str(tmp_path / "logs"))
    assert "app: job" in said
    assert "zone: Asia/Tokyo" in said
    assert "default of the file: 7" in said
    assert "level of the file: WARN" in said
    assert "python: True" in said
    assert "left behind: []" in said
    assert said.count("rows: 2") == 2
    logged = "".join(p.read_text() for p in (tmp_path / "logs").rglob("*") if p.is_file())
    assert "SparkListenerSQLExecutionStart" in logged
    assert "redacted" in logged
    assert "hush" not in said + logged


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_settings_that_spark_refuses_at_its_start_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    said = run(tmp_path, job=REFUSED)
    assert "master: Spark does not start on local[few]: " in said
    assert "memory: Spark's Java ended at once; its own output above says why" in said


def run(home: Path, *words: str, job: str = JOB) -> str:
    ours = ("JAVA_HOME", "PYSPARK_", "SPARK_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", job, *words],
        env={**env, "SPARK_CONF_DIR": str(home / "conf")},
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_java_is_started_without_a_fork_and_ignores_sigint() -> None:
    look = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    before = signal.getsignal(signal.SIGINT)
    with driver.without_fork():
        start: Any = vars(java_gateway)["Popen"]
        child = start(
            [sys.executable, "-c", look],
            preexec_fn=lambda: os._exit(9),
            stdout=subprocess.PIPE,
            text=True,
        )
    assert child.communicate(timeout=60)[0] == "True\n"
    assert signal.getsignal(signal.SIGINT) is before
    assert vars(java_gateway)["Popen"] is subprocess.Popen
