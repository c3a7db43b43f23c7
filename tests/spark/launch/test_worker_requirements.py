"""A Python that Spark has started and that lacks something says so in one line."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pytest

from tambomq.spark.launch import worker_requirements as needs


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be one of Spark's Pythons, without msgspec."""
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    monkeypatch.setattr(
        needs, "find_spec", lambda name: None if name == "msgspec" else find_spec(name)
    )


def test_the_error_of_a_worker_without_a_package_says_what_to_install(worker: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"lacks msgspec.*pip install hiredis") as caught:
        needs.check()
    assert "\n" not in str(caught.value)
    assert sys.executable in str(caught.value)


def test_a_worker_with_all_packages_raises_nothing(
    worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "find_spec", find_spec)
    needs.check()


def test_a_program_that_is_not_a_spark_worker_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    needs.check()
