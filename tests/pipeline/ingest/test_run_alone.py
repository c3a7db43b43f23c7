"""What a pipeline does around its batches. No Spark."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import MagicMock

import pytest
import redis

from tambomq.errors import LakeError, SettingsError
from tambomq.journal.keys import JournalKeys
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.ingest.snapshots import Snapshots
from tambomq.pipeline.lake.lake import Lake
from tests.servers import Server

NOWHERE = "redis://127.0.0.1:1"
no_spark: Any = None


class FakeQuery:
    """A streaming query that stops at once, whatever its batch does."""

    recentProgress = ()  # noqa: N815  (Spark's name)
    isActive = True  # noqa: N815  (as above)

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def awaitTermination(self, _: float) -> bool:  # noqa: N802  (as above)
        return False

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stopped.set()


class StartedPipeline(Pipeline):
    """A pipeline whose query is a fake."""

    def __init__(self, lake: Lake, *, snapshots: bool = False) -> None:
        super().__init__(no_spark, lake, PipelineOptions(NOWHERE, snapshots=snapshots))
        self.query: Any = FakeQuery()

    def start(self) -> Any:
        return self.query


def test_a_pipeline_has_not_ended_while_its_last_batch_is_written(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, late = StartedPipeline(lake), []
    begun, ended = threading.Event(), threading.Event()

    def write(*_: object) -> None:
        begun.set()
        assert pipeline.query.stopped.wait(60)
        # True at once if the pipeline does not wait for its batch.
        late.append(ended.wait(0.2))

    monkeypatch.setattr(pipeline, "_write", write)
    batch = threading.Thread(target=pipeline._write_batch, args=(no_spark, 0))

    def begin_batch() -> bool:
        # Between the question whether a batch is being written, and the end.
        batch.start()
        assert begun.wait(60)
        return True

    monkeypatch.setattr(Pipeline, "busy", False)
    assert [*pipeline.follow(begin_batch)] == []
    ended.set()
    batch.join()
    assert late == [False]


def test_a_batch_that_begins_after_the_end_is_refused(lake: Lake) -> None:
    pipeline = StartedPipeline(lake)
    assert [*pipeline.follow(lambda: True)] == []
    with pytest.raises(LakeError, match="left for its next start"):
        pipeline._write_batch(no_spark, 0)


def test_a_journal_that_is_no_longer_selected_is_not_kept_for_the_lake(
    lake: Lake, server: Server, db: redis.Redis
) -> None:
    pipeline = Pipeline(no_spark, lake, PipelineOptions(server.url, ["rsmq:a"], snapshots=False))
    pipeline._commit_journals({f"rsmq:journal:{queue}": {"id": "1-0"} for queue in "ab"})
    assert db.hget(JournalKeys("rsmq", "a").state, f"committed:lake-{lake.id}") == b"1-0"
    assert not db.exists(JournalKeys("rsmq", "b").state)


def test_days_are_those_of_utc_whatever_the_session_has(lake: Lake, server: Server) -> None:
    spark = MagicMock()
    spark.sparkContext.defaultParallelism = 2
    Pipeline(spark, lake, PipelineOptions(server.url, snapshots=False)).start()
    spark.conf.set.assert_any_call("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("error", [LakeError("damaged"), SettingsError("no locks"), OSError("?")])
def test_a_snapshot_that_cannot_be_written_ends_no_pipeline(
    lake: Lake,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Snapshots) -> None:
        raise error

    monkeypatch.setattr(Snapshots, "commit_alone", fail)
    assert [*StartedPipeline(lake, snapshots=True).follow(lambda: True)] == []
    assert f"could not be written: {error}" in caplog.text
