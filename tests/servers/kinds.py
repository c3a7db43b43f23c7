"""The kinds of server that tests run on, and which of them belong to `make interop`.

``TAMBO_TEST_SERVER`` chooses the one that all tests run on, the embedded Valkey unless it is set.
Tests of several kinds carry the mark ``interop`` on the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.servers import binaries

SERVERS: dict[str, Callable[[], Path | None]] = {
    "valkey": binaries.valkey,
    "redis7": binaries.debian_redis,
    "redis8": partial(binaries.redis8, build=False),
}
FIRST = os.environ.get("TAMBO_TEST_SERVER", "valkey")


def kinds(*names: str) -> list[Any]:
    """Parameters for a test or fixture: these kinds, or all, those but the first for interop."""
    return [
        name if name == FIRST else pytest.param(name, marks=pytest.mark.interop)
        for name in names or SERVERS
    ]


def binary(name: str) -> Path:
    """The program of that kind; skips the test where it cannot be had."""
    if (found := SERVERS[name]()) is None:
        pytest.skip(f"{name} cannot be had on this machine")
    return found
