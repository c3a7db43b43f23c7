"""Queues as one builds them from plain Redis: a list, and pub/sub. They must be found to lose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.plain_sender import NAME
from tests.chaos.subject import Subject
from tests.chaos.world import World

_SENDER: Final = "tests.chaos.roles.plain_sender"
_WORKER: Final = "tests.chaos.roles.plain_worker"
_PUBLISH: Final = {"publish": True}


def _in_list(world: World) -> Iterator[str]:
    for text in world.db.lrange(NAME, 0, -1):
        yield text.decode()


LISTS: Final = Subject(
    "lists",
    (Role("sender", _SENDER, 2, sends=True), Role("worker", _WORKER, 2)),
    Promises,
    pending=_in_list,
)
PUBSUB: Final = Subject(
    "pubsub",
    # One worker: each subscriber has each message.
    (
        Role("sender", _SENDER, 2, sends=True, options=_PUBLISH),
        Role("worker", _WORKER, options=_PUBLISH),
    ),
    Promises,
)
