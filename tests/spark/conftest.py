"""Tests of Spark take their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import sparking


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sparking.longer(items, Path(__file__).parent)
