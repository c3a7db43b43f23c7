"""The rules of the repository's layout, checked by tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules import RULES

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("violations", RULES.values(), ids=RULES)
def test_house_rule(violations: Callable[[Path], list[str]]) -> None:
    assert violations(ROOT) == []
