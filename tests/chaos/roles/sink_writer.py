"""Writes batches to an RSMQ queue in fenced chunks, as Spark's sink does, until SIGTERM.

A batch that was not ended when the process died is written again, as by Spark: the same chunks,
with the same tokens.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from tambomq.rsmq.bulk import sink
from tambomq.rsmq.keys import Keys
from tambomq.spark.sink.fence import Task, digest
from tambomq.store.sync import Store
from tests.chaos.role import Outgoing, RoleContext, main

QUEUE = "sink"
_QUERY = "query"
ROWS = 5
_CHUNKS = 20
_AGAIN_S = 0.05


def program(context: RoleContext) -> None:
    """Write batch after batch, ``options["rate"]`` rows a second, until the program is to end."""
    rate: float = context.options.get("rate", 0)
    ended = context.folder / f"writer-{context.number}.batch"
    store = Store(context.url, patience_s=context.lease_s)
    first = int(ended.read_text()) + 1 if ended.exists() else 1
    for batch in itertools.count(first):
        for chunk in range(_CHUNKS):
            while not _is_written(context, store, batch, chunk):
                if context.stopping.wait(_AGAIN_S):
                    return
            if context.stopping.wait(ROWS / rate if rate else _AGAIN_S):
                return
        _note(ended, batch)


def _is_written(context: RoleContext, store: Store, batch: int, chunk: int) -> bool:
    task = Task(_QUERY, batch, context.number)
    messages = [
        Outgoing(f"writer-{context.number}:{batch}-{chunk}-{row}:plain") for row in range(ROWS)
    ]
    bodies = [each.text.encode() for each in messages]
    token = task.chunk_token(chunk, digest(bodies))
    with context.sending(*messages):
        store.run(sink.send(Keys(), QUEUE, _QUERY, token, bodies))
        return True
    return False


def _note(path: Path, batch: int) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(str(batch))
    fresh.replace(path)


if __name__ == "__main__":
    main(program)
