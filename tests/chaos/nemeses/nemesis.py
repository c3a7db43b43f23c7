"""A nemesis: a small program that does one fault to a world, waits, and heals it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.member import Part
from tests.chaos.redis_server import Shim
from tests.chaos.subject import Subject
from tests.chaos.world import World


def _always(_: Subject) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Nemesis:
    """One kind of fault. Any number of them act at the same time."""

    name: str
    act: Callable[[World], None]
    """Does the fault once, and returns when it is healed."""
    applies: Callable[[Subject], bool] = _always
    """Whether a subject has what it acts on."""
    shims: frozenset[Shim] = frozenset()
    """What must be loaded into Redis."""
    unavailable: Callable[[], str] = str
    """Why it cannot be done on this machine; empty if it can."""


def has(part: Part) -> Callable[[Subject], bool]:
    """Return whether a subject has processes that are senders, workers or servers."""
    return lambda subject: subject.has(part)


def may_lose_all(subject: Subject) -> bool:
    """Whether a subject goes on after Redis has lost everything."""
    return subject.uses_redis and not subject.keeps_all


def uses_redis(subject: Subject) -> bool:
    """Whether a subject has something to do with Redis."""
    return subject.uses_redis
