"""The package in a zip, as it travels to workers that never heard of it."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

import tambomq
from tambomq.spark.launch import shipping

ROOT = Path(tambomq.__file__).parents[1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tambomq"


def test_the_zip_holds_what_is_installed(cache: Path) -> None:
    with zipfile.ZipFile(shipping.zipped()) as packed:
        names = set(packed.namelist())
    source = "tambomq/spark/formats/rsmq/source.py"
    assert {"tambomq/__init__.py", source, "pyspark_rsmq.py"} <= names
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


def scripts() -> list[Path]:
    return list((ROOT / "tambomq").rglob("*.lua"))
