"""RSMQ: senders, and workers that renew, retry and dead-letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import ATTRIBUTES, DEAD_SUFFIX, Keys
from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.rsmq_sender import QUEUE
from tests.chaos.subject import Subject
from tests.chaos.world import World

BUDGET: Final = 4
_KEYS: Final = Keys()


def _prepare(world: World) -> None:
    with Rsmq(world.server.url) as rsmq:
        rsmq.create_queue(QUEUE)


def _refill(world: World) -> list[tuple[Any, ...]]:
    data = world.db.hgetall(_KEYS.data(QUEUE))
    attributes = [word for name in ATTRIBUTES for word in (name, data[name.encode()])]
    return [("SADD", _KEYS.queues, QUEUE), ("HSET", _KEYS.data(QUEUE), *attributes)]


def texts_of_queue(db: Any, queue: str) -> Iterator[str]:
    """Yield the bodies of the messages of *queue*, read with *db*."""
    if ids := db.zrange(_KEYS.messages(queue), 0, -1):
        bodies = db.hmget(_KEYS.data(queue), ids)
        yield from (body.decode() for body in bodies if body is not None)


RSMQ: Final = Subject(
    "rsmq",
    (
        Role("sender", "tests.chaos.roles.rsmq_sender", 2, sends=True),
        Role("worker", "tests.chaos.roles.rsmq_worker", 2, options={"budget": BUDGET}),
    ),
    lambda lease_s: Promises(lease_s, takes_over=True, budget=BUDGET),
    _prepare,
    _refill,
    pending=lambda world: texts_of_queue(world.db, QUEUE),
    dead=lambda world: texts_of_queue(world.db, QUEUE + DEAD_SUFFIX),
)
