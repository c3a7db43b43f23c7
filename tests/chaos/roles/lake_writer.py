"""Commits entries to the log of a lake beside other writers, and drops old ones, until SIGTERM."""

from __future__ import annotations

import time

from tambomq.pipeline.lake.log import LakeFile, LogEntry, TableLog
from tests.chaos.role import Outgoing, RoleContext, main

LOG = "lake-log"
TABLE = "bronze"
_PAUSE_S = 0.02
_DROP_EVERY = 3


def program(context: RoleContext) -> None:
    """Commit batch after batch until the program is to end."""
    log, by = TableLog(context.folder / LOG), f"committer-{context.number}"
    batch = log.version().batches.get(by, 0)
    while not context.stopping.wait(_PAUSE_S):
        batch += 1
        message = Outgoing(f"{by}:{batch}:plain")
        with context.sending(message):
            log.commit(_entry(by, batch, message.text))
        if batch % _DROP_EVERY == 0:
            log.forget_before(round(time.time() * 1000))
        batch = log.version().batches.get(by, 0)


def _entry(by: str, batch: int, path: str) -> LogEntry:
    at_ms = round(time.time() * 1000)
    return LogEntry(at_ms=at_ms, by=by, batch=batch, add={TABLE: [LakeFile(path, 1, 1)]})


if __name__ == "__main__":
    main(program)
