"""Faults of processes: killed (SIGKILL), or stopped for a while (SIGSTOP)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.chaos.member import Member, Part
from tests.chaos.nemeses.nemesis import Nemesis, has
from tests.chaos.role import FORK, FORKED_LEASES
from tests.chaos.world import World

SHORT: Final = (0.1, 0.3)
"""Shorter than the time in which a lease is lost, in leases."""
LONG: Final = (1.5, 2.5)
UPGRADE: Final = "upgrade"
"""The fault that needs an earlier version of the product."""


def kill(part: Part) -> Callable[[World], None]:
    """Return a fault that kills a process of that part and starts another a little later."""

    def act(world: World) -> None:
        with world.victim(part) as member:
            if member.role.serves:
                with world.fault("kill-server"):
                    _kill_and_start(world, member)
            else:
                member.kill()
                world.recorder.note("fault", member.actor, "kill")
                world.sleep(world.hold_s(0, 0.5))
                member.start()

    return act


def _kill_and_start(world: World, member: Member) -> None:
    member.kill()
    world.sleep(world.hold_s(0, 0.5))
    member.start()
    world.wait_listening(member)


def stop(part: Part, between: tuple[float, float]) -> Callable[[World], None]:
    """Return a fault that stops a process of that part, for so many leases."""

    def act(world: World) -> None:
        with (
            world.victim(part) as member,
            world.fault("stop", world.hit_by(member)),
            _stopped(member),
        ):
            world.sleep(world.hold_s(*between))

    return act


def fork(world: World) -> None:
    """Let a worker fork: for some time another process holds its connections."""
    with world.victim("worker") as member:
        with world.fault("fork", member.actor):
            member.send(FORK)
        world.sleep(world.lease_s * FORKED_LEASES)


def upgrade(world: World) -> None:
    """End a process in order and start it from the other version of the product."""
    with world.victim() as member, world.fault(UPGRADE, world.hit_by(member)):
        if code := member.end():
            world.note_crash(member, code)
        this, older = world.sources
        member.source = older if member.source == this else this
        member.start()
        world.wait_listening(member)


@contextmanager
def _stopped(member: Member) -> Iterator[None]:
    member.signal_group(signal.SIGSTOP)
    try:
        yield
    finally:
        member.signal_group(signal.SIGCONT)


_PARTS: Final[tuple[Part, ...]] = ("sender", "worker", "server")

PROCESSES: Final = (
    *(Nemesis(f"kill-{part}", kill(part), has(part)) for part in _PARTS),
    *(
        Nemesis(f"stop-{part}-{name}", stop(part, between), has(part))
        for part in _PARTS[1:]
        for name, between in (("short", SHORT), ("long", LONG))
    ),
    Nemesis("fork", fork, has("worker")),
    Nemesis(UPGRADE, upgrade),
)
