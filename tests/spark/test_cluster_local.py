"""Every kind of job on workers that never heard of the package, in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.rsmq import Rsmq
from tests.servers import Server
from tests.spark import cluster_job, tailing
from tests.spark.clusters import bare_python, environment, run

MESSAGES = 2000


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_jobs_run_on_workers_with_what_is_shipped(
    rsmq: Rsmq, db: redis.Redis, server: Server, tmp_path: Path
) -> None:
    fill(rsmq, db)
    env = environment(PYSPARK_PYTHON=str(bare_python(tmp_path)))
    words = [sys.executable, cluster_job.__file__, server.url, tmp_path, "local-cluster[2,1,1024]"]
    code, out, err = run(words, tmp_path, env)
    assert code == 0, err
    check(json.loads(out), rsmq)


def fill(rsmq: Rsmq, db: redis.Redis) -> None:
    """Make what the job reads."""
    for name in ("orders", "copies"):
        rsmq.create_queue(name)
    rsmq.send_messages("orders", [str(each) for each in range(MESSAGES)])
    tailing.fill(db, "orders", range(MESSAGES))


def check(found: dict[str, Any], rsmq: Rsmq) -> None:
    """See that each message has come through each job once."""
    assert found["workers"] == 2
    assert found["packages"]
    assert [place for place in found["packages"] if ".zip/tambomq/" not in place] == []
    assert (found["read"], found["by SQL"]) == (MESSAGES, 1)
    assert found["leased"] == found["followed"] == [MESSAGES, MESSAGES]
    assert rsmq.get_queue_attributes("orders").msgs == 0
    assert rsmq.get_queue_attributes("copies").msgs == MESSAGES
