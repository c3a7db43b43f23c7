"""A subject: the processes of one protocol, what it promises, and how to see what it stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.checker import Promises
from tests.chaos.member import REDIS, Part, Role
from tests.chaos.world import World

Result = tuple[str, str]
"""Who has a message, as in a history, and its text."""


def _nothing(_: World) -> Iterable[str]:
    return ()


def _no_commands(_: World) -> Sequence[tuple[Any, ...]]:
    return ()


def _prepare_nothing(_: World) -> None:
    pass


def _is_ready(_: World) -> bool:
    return True


def _no_results(_: World) -> Iterable[Result]:
    return ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A protocol with its load."""

    name: str
    roles: tuple[Role, ...]
    promises: Callable[[float], Promises]
    """What is promised, by the length of the leases in seconds."""
    prepare: Callable[[World], None] = _prepare_nothing
    """Called once, before the processes start."""
    refill: Callable[[World], Sequence[tuple[Any, ...]]] = _no_commands
    """Commands after which a server that has lost everything can be used again."""
    pending: Callable[[World], Iterable[str]] = _nothing
    """The texts of the messages that are stored and neither completed nor dead."""
    dead: Callable[[World], Iterable[str]] = _nothing
    """The texts of the dead letters."""
    arrivals: Callable[[World], Iterable[Result]] = _no_results
    """What has arrived in queues that no process reads; it is taken from there."""
    results: Callable[[World], Iterable[Result]] = _no_results
    """What is found at the end in places where it stays, such as a lake."""
    is_ready: Callable[[World], bool] = _is_ready
    """Whether its processes do what they are there for, so that faults may begin."""
    slowness: float = 1.0
    """How many times longer than others it needs, for its faults and until it is idle."""
    keeps_all: bool = False
    """Whether it cannot go on after its server has lost everything: that is an error for it."""

    def has(self, part: Part) -> bool:
        """Whether it has processes that are senders, workers or servers."""
        return any(each.part == part for each in self.roles)

    @property
    def uses_redis(self) -> bool:
        """Whether any of its processes connects to Redis."""
        return any(each.to == REDIS for each in self.roles)
