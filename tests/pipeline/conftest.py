"""Lakes to fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.pipeline.lake.lake import Lake
from tests import sparking


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sparking.longer(items, Path(__file__).parent)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands keep their records in a directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with nothing in it."""
    return Lake.make(tmp_path / "lake")
