"""Spark: a leased queue that is written to another one, and the pipeline that fills a lake.

Each message that is confirmed must be in the other queue once, and in the lake once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow.parquet

from tambomq.errors import TamboError
from tambomq.journal.keys import BODY, EVENT, SENT, JournalKeys
from tambomq.pipeline.lake.lake import Lake
from tambomq.spark.core.stream_cuts import text
from tambomq.spark.tail import offsets
from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.rsmq_sender import QUEUE
from tests.chaos.roles.spark_stream import LAKE, QUERIES, WRITTEN, ready_file
from tests.chaos.subject import Result, Subject
from tests.chaos.subjects.pipeline import created, taken, texts_of
from tests.chaos.world import World

LAKE_READER: Final = "lake"
_JOURNAL: Final = JournalKeys("rsmq", QUEUE)
_STREAM: Final = f"rsmq:journal:{QUEUE}"


def lake_bodies(world: World) -> Iterator[str]:
    """Yield the body of each message that the lake has as sent, as often as it has it."""
    lake = Lake.open(world.folder / LAKE)
    for path in lake.files():
        table = pyarrow.parquet.read_table(path, columns=["event", "body"])
        for event, body in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if event == SENT:
                yield body.decode()


def _in_lake(world: World) -> Iterator[Result]:
    for body in lake_bodies(world):
        yield f"{LAKE_READER}-1.1", body


def _pending(world: World) -> Iterator[str]:
    """Yield what is in the senders' queue, or in the journal and not yet in the lake."""
    yield from texts_of(world, QUEUE)
    read = 0
    with suppress(TamboError):  # There is no lake yet.
        found = Lake.open(world.folder / LAKE).log.version().offset
        read = offsets.decode(found)[_STREAM].id if _STREAM in found else 0
    for _, fields in world.db.xrange(_JOURNAL.journal, f"({text(read)}"):
        if fields[EVENT] == SENT.encode():
            yield fields[BODY].decode()


def _is_ready(world: World) -> bool:
    """Whether both queries run in the JVM that was started last."""
    return all(
        ready_file(world.folder, each.actor, what).exists()
        for each in world.members
        if each.role.name == "spark"
        for what in QUERIES
    )


SPARK: Final = Subject(
    "spark",
    (
        Role(
            "sender",
            "tests.chaos.roles.rsmq_sender",
            2,
            sends=True,
            options={"kinds": {"plain": 100}, "journal": [QUEUE]},
        ),
        Role("spark", "tests.chaos.roles.spark_stream"),
    ),
    lambda lease_s: Promises(
        lease_s, exclusive=False, once=True, completed_by=frozenset({WRITTEN, LAKE_READER})
    ),
    created(QUEUE, WRITTEN),
    pending=_pending,
    arrivals=lambda world: taken(world, WRITTEN),
    results=_in_lake,
    is_ready=_is_ready,
    slowness=4.0,
    keeps_all=True,
)
