"""Workers that never heard of the package read with the one that travels to them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import tambomq
from tambomq.rsmq import Rsmq
from tambomq.spark import shipping
from tests.servers import Server

ROOT = Path(tambomq.__file__).parents[1]

JOB = """\
import sys
from tambomq.spark import session

spark = session(master="local-cluster[2,1,1024]", conf={"spark.executor.memory": "512m"})
session()  # sends nothing a second time

def seen(_):
    import tambomq
    return [tambomq.__file__]

for place in set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(seen).collect()):
    print("package:", place)
rows = spark.read.format("rsmq").option("url", sys.argv[1]).option("queue", "orders").load()
print("rows:", rows.count())
spark.sql(f"CREATE TEMPORARY VIEW orders USING rsmq OPTIONS (url '{sys.argv[1]}', queue 'orders')")
print("by SQL:", spark.sql("SELECT count(*) FROM orders WHERE body = X'39'").first()[0])
spark.stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tambomq"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
    ],
)
def test_only_threads_of_the_driver_are_local(master: str, local: bool) -> None:
    assert shipping.is_local(master) is local


def test_the_zip_holds_what_is_installed(cache: Path) -> None:
    with zipfile.ZipFile(shipping.zipped()) as packed:
        names = set(packed.namelist())
    assert {"tambomq/__init__.py", "tambomq/spark/rsmq.py", "pyspark_rsmq.py"} <= names
    assert {f"tambomq/{path.relative_to(ROOT / 'tambomq')}" for path in scripts()} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_the_zip_is_made_once_until_a_file_changes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "tambomq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1")
    os.utime(package / "__init__.py", (0, 0))
    monkeypatch.setattr(tambomq, "__file__", str(package / "__init__.py"))
    first = shipping.zipped()
    made = first.stat().st_mtime_ns
    assert shipping.zipped() == first
    assert first.stat().st_mtime_ns == made

    (package / "__init__.py").write_text("two = 2")
    second = shipping.zipped()
    assert second != first
    with zipfile.ZipFile(second) as packed:
        assert packed.read("tambomq/__init__.py") == b"two = 2"


def test_a_package_that_runs_from_a_zip_ships_that_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.zip").write_bytes(b"")
    monkeypatch.setattr(tambomq, "__file__", str(tmp_path / "job.zip" / "tambomq" / "__init__.py"))
    assert shipping.zipped() == tmp_path / "job.zip"


@pytest.mark.timeout(300)
def test_workers_without_the_package_read_with_what_is_shipped(
    rsmq: Rsmq, server: Server, tmp_path: Path
) -> None:
    rsmq.create_queue("orders")
    rsmq.send_messages("orders", [str(each) for each in range(100)])
    env = {**os.environ, "PYSPARK_PYTHON": str(bare_python(tmp_path)), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", JOB, server.url],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    package, rows, by_sql = done.stdout.splitlines()
    assert ".zip/tambomq/__init__.py" in package
    assert rows == "rows: 100"
    assert by_sql == "by SQL: 1"


def bare_python(folder: Path) -> Path:
    """A Python that has the compiled packages which a worker needs, and nothing else."""
    site = folder / "site"
    site.mkdir()
    for name in ("hiredis", "msgspec", "pyarrow"):
        spec = find_spec(name)
        assert spec is not None
        (site / name).symlink_to(Path(str(spec.origin)).parent)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program


def scripts() -> list[Path]:
    return list((ROOT / "tambomq").rglob("*.lua"))
