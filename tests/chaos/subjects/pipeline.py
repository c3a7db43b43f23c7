"""Parts of the pipeline that promise exactly once, without Spark: moves, sinks, the lake's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Final

from tambomq.errors import LakeError
from tambomq.pipeline.lake.log import TableLog
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.lake_writer import LOG, TABLE
from tests.chaos.roles.mover import MOVED
from tests.chaos.roles.rsmq_sender import QUEUE
from tests.chaos.roles.sink_writer import QUEUE as SINK_QUEUE
from tests.chaos.subject import Result, Subject
from tests.chaos.world import World

_KEYS: Final = Keys()
_TAKEN_AT_ONCE: Final = 1000


def once(lease_s: float) -> Promises:
    """Return what all parts of the pipeline promise."""
    return Promises(lease_s, exclusive=False, once=True)


def created(*queues: str) -> Callable[[World], None]:
    """Return what creates *queues* before the processes start."""

    def prepare(world: World) -> None:
        with Rsmq(world.server.url) as rsmq:
            for queue in queues:
                rsmq.create_queue(queue)

    return prepare


def texts_of(world: World, queue: str) -> Iterator[str]:
    """Yield the bodies of the messages of a queue."""
    return _bodies(world, queue, world.db.zrange(_KEYS.messages(queue), 0, -1))


def _hidden(world: World, queue: str) -> Iterator[str]:
    """Yield the bodies of messages that are not visible yet."""
    later = f"({_now_ms(world)}"
    return _bodies(world, queue, world.db.zrangebyscore(_KEYS.messages(queue), later, "+inf"))


def _bodies(world: World, queue: str, ids: Sequence[bytes]) -> Iterator[str]:
    bodies = world.db.hmget(_KEYS.data(queue), ids) if ids else ()
    return (body.decode() for body in bodies if body is not None)


def _now_ms(world: World) -> int:
    seconds, microseconds = world.db.time()
    return int(seconds * 1000 + microseconds // 1000)


def taken(world: World, queue: str) -> Iterator[Result]:
    """Take all visible messages of a queue that nobody reads; yield each, as had by a reader of it.

    No process does this: one that dies after it has recorded a message, and before it has deleted
    it, would have it again. For the same reason a message is read and deleted in one step: a server
    that refuses writes for a while answers reads.
    """
    key, data, now_ms = _KEYS.messages(queue), _KEYS.data(queue), _now_ms(world)
    while part := world.db.zrangebyscore(key, "-inf", now_ms, 0, _TAKEN_AT_ONCE):
        with world.db.pipeline(transaction=True) as pipeline:
            pipeline.hmget(data, part)
            pipeline.zrem(key, *part)
            pipeline.hdel(data, *(id + suffix for id in part for suffix in (b"", b":rc", b":fr")))
            bodies, *_ = pipeline.execute()
        for body in bodies:
            yield f"{queue}-1.1", body.decode()


def _moving(world: World) -> Iterator[str]:
    yield from texts_of(world, QUEUE)
    yield from _hidden(world, MOVED)
    for transit in world.db.scan_iter(match="*:transit"):
        yield from (row.decode() for row in world.db.lrange(transit, 0, -1)[1::2])


def _committed(world: World) -> Iterator[Result]:
    with suppress(LakeError):  # A log that cannot be read has nothing.
        for file in TableLog(world.folder / LOG).version().of(TABLE):
            yield "lake-1.1", file.path


def _make_log(world: World) -> None:
    (world.folder / LOG).mkdir()


MOVES: Final = Subject(
    "moves",
    (
        Role(
            "sender",
            "tests.chaos.roles.rsmq_sender",
            2,
            sends=True,
            options={"kinds": {"plain": 90, "later": 10}},
        ),
        Role("mover", "tests.chaos.roles.mover"),
    ),
    once,
    created(QUEUE, MOVED),
    pending=_moving,
    arrivals=lambda world: taken(world, MOVED),
)
SINK: Final = Subject(
    "sink",
    (Role("writer", "tests.chaos.roles.sink_writer", 2, sends=True),),
    once,
    created(SINK_QUEUE),
    arrivals=lambda world: taken(world, SINK_QUEUE),
)
LAKE_LOG: Final = Subject(
    "lake log",
    (Role("committer", "tests.chaos.roles.lake_writer", 3, to="", sends=True),),
    once,
    _make_log,
    # What is committed is there for ever, so nothing of it is pending.
    results=_committed,
)


def _prepare_all(world: World) -> None:
    for each in (MOVES, SINK, LAKE_LOG):
        each.prepare(world)


PIPELINE: Final = Subject(
    "pipeline",
    (
        *MOVES.roles,
        *SINK.roles,
        replace(LAKE_LOG.roles[0], count=2),
    ),
    once,
    _prepare_all,
    pending=MOVES.pending,
    arrivals=lambda world: chain(MOVES.arrivals(world), SINK.arrivals(world)),
    results=_committed,
    keeps_all=True,
)
"""All of them at the same time, on one server."""
