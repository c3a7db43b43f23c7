"""Takes snapshots of queue depths for the lake: with each batch, or alone while no batch comes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from tambomq.clock import now_ms
from tambomq.errors import StoreError
from tambomq.pipeline.ingest import depths
from tambomq.pipeline.ingest.depths import Depth, DepthSnapshot, QueueKey
from tambomq.pipeline.lake.lake import DEPTHS, Lake
from tambomq.pipeline.lake.log import LakeFile, LakeVersion, LogEntry
from tambomq.spark.core.options import QueueSelector
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0
"""A batch does not wait long: the next one takes a snapshot as well."""


class Snapshots:
    """Takes snapshots of the queues at *url* that are *wanted*, into *lake*."""

    def __init__(self, lake: Lake, url: str, wanted: QueueSelector) -> None:
        self._lake, self._url, self._wanted = lake, url, wanted
        files = lake.log.version().of(DEPTHS)
        last_day = max((Path(file.path).parent for file in files), default=None)
        newest = [lake.path / file.path for file in files if Path(file.path).parent == last_day]
        # Queues that are no longer selected are not counted any more: they are not empty.
        self._last = _by_queue(
            [
                each
                for each in depths.latest_depths(newest)
                if depths.is_selected(each.protocol, each.queue, wanted)
            ]
        )
        self._last_ms = 0
        self._taken_at = time.monotonic()

    def take(self) -> DepthSnapshot | None:
        """Return the depths now; `None`, with a warning, if Redis does not answer."""
        self._taken_at = time.monotonic()
        store = Store(self._url, patience_s=_PATIENCE_S)
        try:
            found, uncounted = depths.count_queues(store, self._wanted)
        except StoreError as error:
            log.warning("the depths of the queues could not be counted: %s", error)
            return None
        finally:
            store.close()
        previously_filled = [queue for queue, each in self._last.items() if each.backlog]
        return DepthSnapshot(now_ms(), found, previously_filled, uncounted)

    def committed(self, snapshot: DepthSnapshot) -> None:
        """Remember *snapshot*, which was committed to the lake, unless a newer one was."""
        # A batch may commit its snapshot after a later one was committed alone.
        if snapshot.at_ms >= self._last_ms:
            self._last, self._last_ms = self._known_after(snapshot), snapshot.at_ms

    def is_due(self, every_s: float) -> bool:
        """Whether the last snapshot is at least *every_s* seconds old."""
        return time.monotonic() - self._taken_at >= every_s

    def commit_alone(self) -> LakeVersion | None:
        """Commit a snapshot without a batch; return the version, or `None` if nothing changed."""
        snapshot = self.take()
        if snapshot is None or self._known_after(snapshot) == self._last:
            return None
        made: list[LakeFile] = []
        with self._lake.writing():
            try:
                with self._lake.staged() as staging:
                    snapshot.write(staging)
                    made = self._lake.adopt(DEPTHS, staging)
                entry = LogEntry(at_ms=now_ms(), by="depths", add={DEPTHS: made})
                version = self._lake.log.commit(entry) if made else None
            except BaseException:
                # Also after a commit that was interrupted: `discard` asks the log what it has.
                self._lake.discard(made)
                raise
        self.committed(snapshot)
        return version

    def _known_after(self, snapshot: DepthSnapshot) -> dict[QueueKey, Depth]:
        """Return the last depth of each queue, from *snapshot* or, if that has none, before it.

        So a queue that cannot be counted for a while, and is deleted then, still gets its 0.
        """
        kept = {key: self._last[key] for key in snapshot.uncounted if key in self._last}
        return {**kept, **_by_queue(snapshot.depths)}


def _by_queue(found: list[Depth]) -> dict[QueueKey, Depth]:
    """Return *found* by protocol and queue, without those that are empty and not followed."""
    return {(each.protocol, each.queue): each for each in found if each.backlog or each.followed}
