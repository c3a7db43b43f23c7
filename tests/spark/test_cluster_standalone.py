"""Every kind of job on workers that never heard of the package, in processes of their own.

The cluster, a master with two workers, is started from what pip has installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.spark.launch import java
from tests.servers import Server, eventually
from tests.spark import cluster_job, sampling
from tests.spark.clusters import (
    HOME,
    bare_python,
    check,
    end,
    environment,
    fill,
    run,
    standalone,
)

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]

READ = """\
import sys
from tambomq.spark import session

spark = session(master=sys.argv[1], conf={"spark.driver.host": "127.0.0.1"})
try:
    rows = spark.read.format("rsmq").options(url=sys.argv[2], queue="orders").load()
    print("planned")
    print(rows.count())
except Exception as error:
    print(error)
spark.stop()
"""

WAIT = """\
import sys
from tambomq.spark import session

conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "900g"}
spark = session(master=sys.argv[1], conf=conf | {"spark.starvation.timeout": "1s"})
spark.range(1).count()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone(tmp_path_factory.mktemp("cluster")) as address:
        yield address


WAYS = ("local-cluster", "a program", "spark-submit")


@pytest.mark.parametrize("way", sampling.some("clusters", WAYS, 1))
def test_all_jobs_run_on_workers_with_what_is_shipped(
    way: str, master: str, rsmq: Rsmq, db: redis.Redis, server: Server, tmp_path: Path
) -> None:
    fill(rsmq, db)
    target = "local-cluster[2,1,1024]" if way == "local-cluster" else master
    env = environment(PYSPARK_PYTHON=str(bare_python(tmp_path)))
    words: list[object] = [cluster_job.__file__, server.url, tmp_path]
    if way == "spark-submit":
        env |= {"JAVA_HOME": java.home(os.environ), "PYSPARK_DRIVER_PYTHON": sys.executable}
        words = [HOME / "bin" / "spark-submit", "--master", target, *words]
    else:
        words = [sys.executable, *words, target]
    code, out, err = run(words, tmp_path, env)
    assert code == 0, err
    found = json.loads(out)
    assert found["master"] == target
    check(found, rsmq)


def test_a_worker_that_lacks_a_package_is_reported_in_one_line(
    master: str, rsmq: Rsmq, server: Server, tmp_path: Path
) -> None:
    rsmq.create_queue("orders")
    whole = bare_python(tmp_path / "whole")
    lacking = bare_python(tmp_path / "lacking", without=["msgspec"])
    # The driver's machine has what the workers lack, at the same path.
    either = tmp_path / "either"
    choice = f'case "$PWD" in */work-*) exec {lacking} "$@" ;; esac\nexec {whole} "$@"\n'
    either.write_text(f"#!/bin/sh\n{choice}")
    either.chmod(0o755)
    for python, planned in ((either, True), (lacking, False)):
        words = [sys.executable, "-c", READ, master, server.url]
        code, out, err = run(words, tmp_path, environment(PYSPARK_PYTHON=str(python)))
        assert code == 0, err
        assert ("planned" in out) is planned
        one_line_errors(out)


def one_line_errors(out: str) -> None:
    (said,) = {line.strip() for line in out.splitlines() if "msgspec" in line}
    assert re.search(r"the Python at \S+ lacks msgspec, which cannot be sent: `\S+ -m pip", said)
    assert "tambomq" not in out.replace(said, "")  # no way through our code


def test_a_job_that_waits_for_workers_says_so(master: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", WAIT, master],
            cwd=tmp_path,
            env=environment(),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        eventually(lambda: "Initial job has not accepted" in said.read_text(), within_s=200)
    finally:
        end(process)
