"""The fence of a write: the tokens of written chunks, stored beside the queue they went to.

It is a hash for each queue and query: token → digest of the rows; ``floor``: the first batch that
may still be written. One script checks the token, writes the rows and stores the token. A task or
batch that Spark repeats produces the same tokens, so its rows are not written again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from tambomq.errors import LocalProtocolError
from tambomq.spark.sink.rows import lengths
from tambomq.store.call import Call, Plan, load_script, results

WEEK_S: Final = 7 * 24 * 3600
"""How long tokens are kept: a query down for longer may write its last batch twice."""
HOUR_S: Final = 3600
"""How long a finished write's fence is kept: abandoned tasks may still be running."""

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_AT_ONCE: Final = 500
"""Fences of one round trip."""
_OTHERS, _OVER = -1, -2
_PRUNE = load_script("tambomq.spark.sink", "prune_fence")


class Task(NamedTuple):
    """The identity of a task, which stays the same when Spark repeats it."""

    query: str
    batch: int
    partition: int

    def chunk_token(self, chunk: int, digest: str) -> ChunkToken:
        """Return the token of a chunk."""
        return ChunkToken(self.batch, f"{self.batch}/{self.partition}/{chunk}", digest, WEEK_S)

    def settled(self, reply: int) -> bool:
        """Whether a chunk was written now, not before; raise `LocalProtocolError` if refused."""
        if reply == _OTHERS:
            raise LocalProtocolError(
                f"partition {self.partition} of batch {self.batch} was written before with other "
                "rows, or in another order: a task that is repeated must write the same rows. "
                "Nothing more was written; read from a source, or a table, with a fixed order"
            )
        if reply == _OVER:
            raise LocalProtocolError(
                f"batch {self.batch} is closed, since later ones of this query were written: is "
                "the checkpoint an old copy? Nothing was written; with a new checkpoint the query "
                "starts from the beginning"
            )
        return bool(reply)


class ChunkToken(NamedTuple):
    """A chunk's arguments to a protocol's script, in this order."""

    batch: int
    token: str
    digest: str
    keep_s: int


def stream_task(context: Any) -> Task:
    """Return the task that *context*, a ``TaskContext`` of a streaming query, belongs to."""
    query, batch = map(context.getLocalProperty, (_QUERY_ID, _BATCH_ID))
    if query is None or batch is None:
        raise LocalProtocolError("Spark does not say which query and batch this task belongs to")
    return Task(query, int(batch), context.partitionId())


def batch_task(context: Any, run: str) -> Task:
    """Return the task that *context* belongs to, in the write that is called *run*."""
    return Task(run, 0, context.partitionId())


def digest(bodies: Sequence[bytes | None], queues: Sequence[str | None] = ()) -> str:
    """Return a digest of the rows, which depends on their order."""
    sizes = array("q", lengths(bodies, missing=-1))
    total = crc32(b"".join(filter(None, bodies)), crc32(sizes.tobytes()))
    for queue in queues:
        total = crc32(repr(queue).encode(), total)
    return f"{len(bodies)}-{total:08x}"


def prune(fences: Sequence[str], first_batch: int) -> Plan[int]:
    """Delete the tokens of batches before *first_batch*; later writes of these are refused.

    Return how many tokens were deleted.
    """
    deleted = 0
    for first in range(0, len(fences), _AT_ONCE):
        cursors = dict.fromkeys(fences[first : first + _AT_ONCE], b"0")
        while cursors:
            calls = [_prune_page(fence, first_batch, cursors[fence]) for fence in cursors]
            pages: list[tuple[bytes, int]] = results((yield calls))
            deleted += sum(count for _, count in pages)
            found = zip(cursors, pages, strict=True)
            cursors = {fence: cursor for fence, (cursor, _) in found if cursor != b"0"}
    return deleted


def _prune_page(fence: str, first_batch: int, cursor: bytes) -> Call[tuple[bytes, int]]:
    args = (first_batch, WEEK_S, cursor)
    return Call(_PRUNE, (fence,), args, decode=tuple, repeatable=True)


def outlive_all(fences: Sequence[str]) -> Plan[None]:
    """Let the fences of a finished write expire after an hour, for tasks still running."""
    for first in range(0, len(fences), _AT_ONCE):
        results((yield [outlive(fence) for fence in fences[first : first + _AT_ONCE]]))


def outlive(fence: str) -> Call[bool]:
    """Let the fence of a finished write expire after an hour."""
    return Call("EXPIRE", (fence,), (HOUR_S,), decode=bool, repeatable=True)
