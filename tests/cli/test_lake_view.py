"""The console shows the lake of the pipeline, or says how to get one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tambomq.cli.lake_view import pipeline_reader
from tests.servers import Server


def test_a_lake_that_does_not_exist_is_said_to_be_missing(server: Server, tmp_path: Path) -> None:
    status = pipeline_reader(tmp_path / "none")(server.url)
    assert status.lake is None
    assert "lake" in status.note


def test_without_the_extra_the_note_says_how_to_install_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tambomq.pipeline.status", None)
    status = pipeline_reader(tmp_path)(server.url)
    assert "[spark]" in status.note
    assert "install" in status.note
