"""Faults of the machine that Redis runs on: its disk and its clock, by preloaded libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.chaos.history import EVERYONE
from tests.chaos.nemeses.nemesis import Nemesis, uses_redis
from tests.chaos.nemeses.processes import LONG
from tests.chaos.operations import CLOCK
from tests.chaos.shims.disk import DiskFault
from tests.chaos.shims.preload import unavailable
from tests.chaos.world import World

_SLOW_MS: Final = 100
SURVIVED_LEASES: Final = 0.5
"""A step of less than two thirds of a lease does not make a worker lose it."""
_FAR_S: Final = 3600.0


def _on_disk(kind: str, fail: Callable[[DiskFault], None]) -> Callable[[World], None]:
    def act(world: World) -> None:
        disk = world.redis.disk
        assert disk is not None
        with world.server_held, world.fault(kind):
            fail(disk)
            try:
                world.sleep(world.hold_s(*LONG))
            finally:
                disk.well()
            world.writable()

    return act


def _step_there_and_back(kind: str, leases: float) -> Callable[[World], None]:
    """Return a fault that sets the clock by so many leases, and later right again."""

    def act(world: World) -> None:
        with world.server_held:
            for by, is_wrong in ((leases, True), (-leases, False)):
                # What is due is due at another time. But workers survive it, so it excuses them
                # only at the moment when it happens.
                with world.fault(kind, CLOCK):
                    _step(world, by * world.lease_s)
                    world.recorder.note("fault", EVERYONE, kind)
                    world.sleep(world.hold_s(*LONG) if is_wrong else 0)

    return act


def _step_far(world: World) -> None:
    """Set the clock an hour forward: all leases end at once."""
    with world.server_held, world.fault(CLOCK + "-hour"):
        _step(world, _FAR_S)
        world.recorder.begin("fault", CLOCK, CLOCK + "-hour")  # It stays so.
        world.sleep(world.lease_s)


def _step(world: World, by_s: float) -> None:
    clock = world.redis.clock
    assert clock is not None
    clock.step(by_s)


_DISK: Final = (
    ("disk-full", DiskFault.full),
    ("disk-filling", DiskFault.filling),
    ("disk-eio", DiskFault.broken),
    ("disk-unsynced", DiskFault.unsynced),
    ("disk-slow", lambda disk: disk.slow(_SLOW_MS)),
)
_CLOCK: Final = (
    (CLOCK + "-forward", _step_there_and_back(CLOCK + "-forward", SURVIVED_LEASES)),
    (CLOCK + "-back", _step_there_and_back(CLOCK + "-back", -SURVIVED_LEASES)),
    (CLOCK + "-hour", _step_far),
)

MACHINE: Final = (
    *(
        Nemesis(name, _on_disk(name, fail), uses_redis, frozenset({"disk"}), unavailable)
        for name, fail in _DISK
    ),
    *(Nemesis(name, act, uses_redis, frozenset({"clock"}), unavailable) for name, act in _CLOCK),
)
