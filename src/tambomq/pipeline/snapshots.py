"""Snapshots of the queues' own depths into the lake: with each batch, and alone if none comes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from tambomq.clock import now_ms
from tambomq.errors import StoreError
from tambomq.pipeline import depths
from tambomq.pipeline.depths import Counted, Depth
from tambomq.pipeline.lake import DEPTHS, Lake
from tambomq.pipeline.table_log import Entry, File, Version
from tambomq.spark.options import Wanted
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0
"""A batch does not wait long for a number that the next one tells too."""
_Place = tuple[str, str]


class Snapshots:
    """Takes snapshots of the queues at *url* that are *wanted*, into *lake*."""

    def __init__(self, lake: Lake, url: str, wanted: Wanted) -> None:
        self._lake, self._url, self._wanted = lake, url, wanted
        files = lake.log.version().of(DEPTHS)
        last_day = max((Path(file.path).parent for file in files), default=None)
        newest = [lake.path / file.path for file in files if Path(file.path).parent == last_day]
        self._last = _by_place(depths.latest(newest))
        self._taken_at = time.monotonic()

    def take(self) -> Counted | None:
        """Return what there is now; none, with a warning, if the server cannot tell."""
        self._taken_at = time.monotonic()
        store = Store(self._url, patience_s=_PATIENCE_S)
        try:
            found = depths.taken(store, self._wanted)
        except StoreError as error:
            log.warning("how much is in the queues is not known: %s", error)
            return None
        finally:
            store.close()
        former = [place for place, each in self._last.items() if each.backlog]
        return Counted(now_ms(), found, former)

    def keep(self, counted: Counted) -> None:
        """Note that *counted* is in the lake."""
        self._last = _by_place(counted.depths)

    def is_due(self, every_s: float) -> bool:
        """Whether the last one was taken so long ago."""
        return time.monotonic() - self._taken_at >= every_s

    def enter(self) -> Version | None:
        """Put a snapshot alone into the lake, if anything has changed; return the new version."""
        counted = self.take()
        if counted is None or _by_place(counted.depths) == self._last:
            return None
        made: list[File] = []
        with self._lake.writing():
            try:
                with self._lake.staged() as home:
                    counted.write(home)
                    made = self._lake.adopt(DEPTHS, home)
                entry = Entry(at_ms=now_ms(), by="depths", add={DEPTHS: made})
                version = self._lake.log.commit(entry) if made else None
            except BaseException:
                self._lake.discard(made)
                raise
        self.keep(counted)
        return version


def _by_place(found: list[Depth]) -> dict[_Place, Depth]:
    """Return *found* by protocol and queue, without those there is nothing to say of."""
    return {(each.protocol, each.queue): each for each in found if each.backlog or each.followed}
