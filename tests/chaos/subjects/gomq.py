"""GOMQ: publishers, a server in a process of its own, and consumers that acknowledge."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tambomq.gomq import keys
from tambomq.gomq.wire import decode
from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.gomq_publisher import KEYS
from tests.chaos.roles.gomq_server import PEER_TIMEOUT_LEASES
from tests.chaos.subject import Subject
from tests.chaos.world import World

_ELEMENT: Final = re.compile(rb'\{"id":"[^}]*\}')
"""A message as it is stored. A batch that is not acknowledged has some of them in a row."""


def _pending(world: World) -> Iterator[str]:
    """Yield the texts of main queues, of dedicated queues and of batches not acknowledged."""
    for number, key in enumerate(KEYS, 1):
        peer = consumer = f"consumer-{number}"
        elements = world.db.lrange(keys.queue(key), 0, -1)
        elements += world.db.lrange(keys.messages(key, consumer, peer), 0, -1)
        elements.append(world.db.get(keys.handed(consumer, peer)) or b"")
        for element in elements:
            yield from (decode(found).payload.decode() for found in _ELEMENT.findall(element))


GOMQ: Final = Subject(
    "gomq",
    (
        Role("server", "tests.chaos.roles.gomq_server", serves=True),
        Role("publisher", "tests.chaos.roles.gomq_publisher", 2, to="server", sends=True),
        Role("consumer", "tests.chaos.roles.gomq_consumer", len(KEYS), to="server"),
    ),
    # What a silent peer has is taken from it only after the timeout of peers.
    lambda lease_s: Promises(lease_s * PEER_TIMEOUT_LEASES, ordered=True),
    pending=_pending,
)
