"""Calls for many queues at once: renew their leader locks, and find those with due jobs.

On a cluster each call is for one queue, because the keys of a call must be in one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.leader import CLOCKS_APART_MS, LOCK_TTL_S
from tambomq.store.call import Call, load_script

QUEUES = 250
"""Queues per script: less than a millisecond."""

_DUE = load_script("tambomq.chasqui.ops", "due_queues")
_RENEW = load_script("tambomq.chasqui.ops", "renew_locks")


class Leadership(msgspec.Struct, frozen=True):
    """Which locks of one queue this process holds, and when its scheduler is needed."""

    promotes: bool
    schedules: bool
    next_fire_ms: int | None
    """By the server's clock; `None` if the queue has no recurring jobs."""


class LockRenewal(msgspec.Struct, frozen=True):
    """The reply of `renew_locks`."""

    server_ms: int
    queues: list[Leadership]
    """In the order of the call."""


def due_queues(queues: Sequence[Keys], within_ms: int) -> Call[list[int]]:
    """Return the indexes of *queues* with a job due within *within_ms*, or with a damaged key."""
    return Call(_DUE, tuple(keys.delayed for keys in queues), (within_ms,), _as_is, repeatable=True)


def renew_locks(queues: Sequence[Keys], holder: str, clock_ms: int) -> Call[LockRenewal]:
    """Take or renew the locks of *queues* that no other process holds.

    *clock_ms* is the clock of this machine: if it is wrong, the scheduler's locks are not taken.
    """
    locks = tuple(
        key for keys in queues for key in (keys.promoter_lock, keys.scheduler_lock, keys.repeat)
    )
    args = (holder, LOCK_TTL_S, clock_ms, CLOCKS_APART_MS)
    return Call(_RENEW, locks, args, _renewal, repeatable=True)


def _renewal(reply: list[int]) -> LockRenewal:
    server_ms, *rest = reply
    rows = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return LockRenewal(
        server_ms,
        [
            Leadership(bool(promotes), bool(schedules), None if fire < 0 else fire)
            for promotes, schedules, fire in rows
        ],
    )


def _as_is(reply: list[int]) -> list[int]:
    return reply
