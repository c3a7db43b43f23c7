"""Which chunks of rows were written: a token for each, kept beside the queue it went to.

A hash for each queue and query: token → digest of the rows; ``floor``: the first batch that may
still be written. A protocol's script looks for the token, writes the rows and sets it, in one
step. A task or a batch that Spark runs again makes the same tokens, and so writes nothing again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from tambomq.errors import LocalProtocolError
from tambomq.store.call import Call, load_script

WEEK_S: Final = 7 * 24 * 3600
"""A query that was down for longer may write its last batch twice."""
HOUR_S: Final = 3600
"""A task that Spark has given up may go on for a while after its job has ended."""

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_OTHERS, _OVER = -1, -2
_PRUNE = load_script("tambomq.spark", "prune_fence")


class Task(NamedTuple):
    """What Spark runs again under the same name, whenever it has to."""

    query: str
    batch: int
    partition: int

    def mark(self, chunk: int, digest: str) -> Mark:
        """Return what the fence is told of a chunk."""
        return Mark(self.batch, f"{self.batch}/{self.partition}/{chunk}", digest, WEEK_S)

    def settled(self, reply: int) -> bool:
        """Whether a chunk was written now, not before; raise `LocalProtocolError` for others."""
        if reply == _OTHERS:
            raise LocalProtocolError(
                f"partition {self.partition} of batch {self.batch} was begun before, with other "
                "rows or in another order: what is written there must come the same each time. "
                "Nothing more was written; read from a source, or a table, with a fixed order"
            )
        if reply == _OVER:
            raise LocalProtocolError(
                f"batch {self.batch} is over, later ones of this query were written: is the "
                "checkpoint an old copy? Nothing was written; a new checkpoint begins anew"
            )
        return bool(reply)


class Mark(NamedTuple):
    """What a protocol's script is told of a chunk, in this order."""

    batch: int
    token: str
    digest: str
    keep_s: int


def stream_task(context: Any) -> Task:
    """Return the task that *context*, a ``TaskContext`` of a streaming query, belongs to."""
    query, batch = map(context.getLocalProperty, (_QUERY_ID, _BATCH_ID))
    if query is None or batch is None:
        raise LocalProtocolError("Spark does not tell which query and batch this task is of")
    return Task(query, int(batch), context.partitionId())


def batch_task(context: Any, run: str) -> Task:
    """Return the task that *context* belongs to, in the write that is called *run*."""
    return Task(run, 0, context.partitionId())


def digest(bodies: Sequence[bytes | None], queues: Sequence[str | None] = ()) -> str:
    """Return what tells these rows from others, and from the same in another order."""
    lengths = array("q", [-1 if body is None else len(body) for body in bodies])
    total = crc32(b"".join(filter(None, bodies)), crc32(lengths.tobytes()))
    for queue in queues:
        total = crc32(repr(queue).encode(), total)
    return f"{len(bodies)}-{total:08x}"


def prune(fence: str, floor: int) -> Call[int]:
    """Forget the chunks of batches before *floor*; whoever still writes for them is refused."""
    return Call(_PRUNE, (fence,), (floor, WEEK_S), decode=int, repeatable=True)


def outlive(fence: str) -> Call[bool]:
    """Keep the fence of a write that has ended for those of its tasks that have not."""
    return Call("EXPIRE", (fence,), (HOUR_S,), decode=bool, repeatable=True)
