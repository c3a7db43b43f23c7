"""Calls that look after many queues at once: which has something due, and who leads it.

On a cluster each of these is for one queue, because its keys are in one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.lead_ops import CLOCKS_APART_MS, LOCK_TTL_S
from tambomq.store.call import Call, load_script

QUEUES = 250
"""So many queues are looked at by one script, which takes less than a millisecond."""

_DUE = load_script("tambomq.chasqui", "due_queues")
_RENEW = load_script("tambomq.chasqui", "renew_locks")


class Leadership(msgspec.Struct, frozen=True):
    """Who leads one queue, and when it needs its scheduler."""

    promotes: bool
    schedules: bool
    next_fire_ms: int | None
    """By the server's clock; `None` if nothing recurs."""


class Renewal(msgspec.Struct, frozen=True):
    """What became of the locks of many queues."""

    server_ms: int
    queues: list[Leadership]
    """In the order in which they were asked for."""


def due_queues(queues: Sequence[Keys], within_ms: int) -> Call[list[int]]:
    """Return the positions of *queues* that have a job due within *within_ms*, or are damaged."""
    return Call(_DUE, tuple(keys.delayed for keys in queues), (within_ms,), _as_is, repeatable=True)


def renew_locks(queues: Sequence[Keys], holder: str, clock_ms: int) -> Call[Renewal]:
    """Become or stay the leader of *queues*, where nobody else is.

    *clock_ms* is the time on this machine: whose clock is wrong schedules nothing.
    """
    locks = tuple(
        key for keys in queues for key in (keys.promoter_lock, keys.scheduler_lock, keys.repeat)
    )
    args = (holder, LOCK_TTL_S, clock_ms, CLOCKS_APART_MS)
    return Call(_RENEW, locks, args, _renewal, repeatable=True)


def _renewal(reply: list[int]) -> Renewal:
    server_ms, *rest = reply
    rows = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return Renewal(
        server_ms,
        [
            Leadership(bool(promotes), bool(schedules), None if fire < 0 else fire)
            for promotes, schedules, fire in rows
        ],
    )


def _as_is(reply: list[int]) -> list[int]:
    return reply
