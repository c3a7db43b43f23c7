"""One choice of event loop for every process that TamboMQ starts a loop in."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import uvloop

import tambomq
from tambomq.runtime.event_loop import loop_factory


def test_uvloop_is_chosen_where_it_is_installed() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert isinstance(runner.get_loop(), uvloop.Loop)


def test_asyncio_s_own_loop_is_chosen_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None


def test_no_other_module_imports_uvloop() -> None:
    source = Path(tambomq.__file__).parent
    importing = [path.name for path in source.rglob("*.py") if "import uvloop" in path.read_text()]
    assert importing == ["event_loop.py"]
