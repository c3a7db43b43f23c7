"""The facts of a batch that are known before any row is read. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tambomq.errors import LakeError
from tambomq.pipeline.ingest.batch import batch_info, reached_ms

END = {"rsmq:journal:q": {"id": "5-0", "added": 3}}


def checkpoint(home: Path, version: str = "v1", end: str = json.dumps(END)) -> Path:
    (home / "offsets").mkdir()
    (home / "metadata").write_text('{"id": "me"}')
    (home / "offsets" / "7").write_text(f'{version}\n{{"batchTimestampMs": 1}}\n{end}')
    return home


def test_a_batch_is_known_by_its_query_its_number_and_its_end(tmp_path: Path) -> None:
    found = batch_info(checkpoint(tmp_path), 7)
    assert (found.query, found.number, found.end) == ("me", 7, END)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is of version v9, not v1"):
        batch_info(checkpoint(tmp_path, "v9"), 7)


@pytest.mark.parametrize("end", ["", "{", "{}\n{}"])
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, end: str) -> None:
    with pytest.raises(LakeError, match="cannot be read"):
        batch_info(checkpoint(tmp_path, end=end), 7)


def test_a_batch_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="cannot be read"):
        batch_info(tmp_path, 0)


def test_nothing_is_closed_beyond_the_stream_that_is_furthest_behind() -> None:
    end = {"a": {"id": "900-0", "added": 4}, "b": {"id": "300-5"}, "c": {"id": "400-0"}}
    assert reached_ms(end) == 300


def test_streams_that_were_read_to_their_ends_hold_nothing_up() -> None:
    assert reached_ms({"a": {"id": "900-0", "added": 4}, "b": {"id": "3-0", "added": 1}}) == 900
    assert reached_ms({}) == 0
