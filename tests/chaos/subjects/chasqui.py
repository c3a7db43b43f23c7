"""ChasquiMQ: senders of jobs of every kind, and workers with their leaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tambomq.chasqui.keys import PAYLOAD, Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.chasqui_sender import QUEUE
from tests.chaos.subject import Subject
from tests.chaos.world import World

BUDGET: Final = 4
_KEYS: Final = Keys(QUEUE)


def texts_of_stream(db: Any, key: str) -> Iterator[str]:
    """Yield the texts of the jobs of a stream, read with *db*."""
    entries: list[tuple[bytes, dict[bytes, bytes]]] = db.xrange(key)
    for _, fields in entries:
        yield _text(decode_envelope(fields[PAYLOAD]).payload)


def pending_jobs(world: World) -> Iterator[str]:
    """Yield the texts of the jobs that wait, run, or are due later."""
    yield from texts_of_stream(world.db, _KEYS.stream)
    for member in world.db.zrange(_KEYS.delayed, 0, -1):
        yield _text(decode_envelope(decode_member(member)[1]).payload)


def dead_jobs(world: World) -> Iterator[str]:
    """Yield the texts of the dead letters."""
    yield from texts_of_stream(world.db, _KEYS.dlq)


def _text(payload: Any) -> str:
    data = msgspec.msgpack.decode(payload)
    return str(data["text"] if isinstance(data, dict) else data)


CHASQUI: Final = Subject(
    "chasqui",
    (
        Role("sender", "tests.chaos.roles.chasqui_sender", 2, sends=True),
        Role("unique", "tests.chaos.roles.chasqui_sender", 2, sends=True, options={"unique": True}),
        Role("worker", "tests.chaos.roles.chasqui_worker", 2, options={"budget": BUDGET}),
    ),
    lambda lease_s: Promises(lease_s, takes_over=True, budget=BUDGET),
    pending=pending_jobs,
    dead=dead_jobs,
)
