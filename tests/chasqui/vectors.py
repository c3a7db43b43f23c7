"""Recorded test vectors of what the engine writes and reads: tests/vectors/chasqui.json."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[1] / "vectors" / "chasqui.json"
_REPEATED = re.compile(r"bytes b'(.)'\*(\d+)")


class Vector:
    """One recorded structure: from which inputs, and its bytes or its fields."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        self.name: str = recorded["name"]
        self.inputs: dict[str, Any] = recorded["inputs"]

    @property
    def blob(self) -> bytes:
        return bytes.fromhex(self.recorded["hex"])

    @property
    def fields(self) -> list[bytes]:
        """Names and values in turn, as Redis replies with them."""
        pairs = [(f["field"].encode(), bytes.fromhex(f["hex"])) for f in self.recorded["fields"]]
        return [part for pair in pairs for part in pair]


def vector(name: str) -> Vector:
    """The vector of this name."""
    [found] = (v for v in _all() if v.name == name)
    return found


def vectors(*prefixes: str) -> list[Any]:
    """Those whose names begin so, for `pytest.mark.parametrize`."""
    found = [pytest.param(v, id=v.name) for v in _all() if v.name.startswith(prefixes)]
    assert found, prefixes
    return found


def table(name: str) -> list[dict[str, Any]]:
    """Rows of a table."""
    rows: list[dict[str, Any]] = _load()["tables"][name]
    return rows


def rows(name: str, key: str) -> list[Any]:
    """Rows of a table, named by one of their columns, for `pytest.mark.parametrize`."""
    return [pytest.param(row, id=str(row[key])) for row in table(name)]


@cache
def _load() -> dict[str, Any]:
    with _FILE.open(encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file, object_hook=_plain)
    return loaded


@cache
def _all() -> tuple[Vector, ...]:
    return tuple(map(Vector, _load()["vectors"]))


def _plain(value: dict[str, Any]) -> Any:
    """Bytes where the file spells bytes: in hex, or as what was repeated how often."""
    if value.keys() == {"$hex"}:
        return bytes.fromhex(value["$hex"])
    if isinstance(data := value.get("data"), str) and (match := _REPEATED.fullmatch(data)):
        value["data"] = match[1].encode() * int(match[2])
    return value
