"""Batches: their facts before any row is read, and which the lake accepts. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tambomq.errors import LakeError
from tambomq.pipeline.ingest.batch import BatchInfo, batch_info, reached_ms
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.lake import BRONZE, Lake
from tambomq.pipeline.lake.log import LogEntry
from tests.pipeline.lake_work import Batch, no_query

END = {"rsmq:journal:q": {"id": "5-0", "added": 3}}


def checkpoint(home: Path, version: str = "v1", end: str = json.dumps(END)) -> Path:
    (home / "offsets").mkdir(parents=True)
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


class EndedBatch(Batch):
    """A batch with an end of its own."""

    def __init__(self, lake: Lake, number: int, end: dict[str, Any]) -> None:
        super().__init__(lake, number)
        self._batch = BatchInfo("query", number, end)


def at(id: str) -> dict[str, Any]:
    return {"rsmq:journal:q": {"id": id}}


def filled(lake: Lake) -> Lake:
    """Return the lake with the batches 0 and 1."""
    for number in (0, 1):
        EndedBatch(lake, number, at(f"{number}-0")).run(no_query)
    return lake


def test_a_batch_that_is_repeated_is_skipped(lake: Lake) -> None:
    before = filled(lake).log.version()
    again = EndedBatch(lake, 1, at("1-0"))
    assert again.is_repetition
    assert again.run(no_query).number == before.number
    assert len(lake.log.version().of(BRONZE)) == 2


@pytest.mark.parametrize(("number", "end"), [(1, "2-0"), (0, "2-0"), (0, "0-0")])
def test_a_batch_of_an_older_checkpoint_is_refused_and_not_skipped(
    lake: Lake, number: int, end: str
) -> None:
    before = filled(lake).log.version()
    with pytest.raises(LakeError, match=rf"older than its lake: it is at batch {number}, .* 1\."):
        EndedBatch(lake, number, at(end)).run(no_query)
    assert lake.log.version() == before


def test_journals_are_not_committed_for_a_batch_that_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.log.commit(LogEntry(at_ms=1, by="me", batch=7, offset=at("9-0")))
    checkpoint(lake.checkpoint)
    pipeline = Pipeline(no_query, lake, PipelineOptions("redis://127.0.0.1:1", snapshots=False))
    committed: list[object] = []
    monkeypatch.setattr(pipeline, "_commit_journals", committed.append)
    with pytest.raises(LakeError, match="older than its lake"):
        pipeline._write_batch(no_query, 7)
    assert committed == []
