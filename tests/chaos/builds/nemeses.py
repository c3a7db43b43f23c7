"""Nemeses of builds: faults of one role alone, so that the others record what it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.chaos.member import Member
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.world import World
from tests.store.proxy import Way

_TIMES: Final = 10
_SHORT_S: Final = 0.03
_FEW_BYTES: Final = 400


@contextmanager
def _one_of(world: World, role: str) -> Iterator[Member]:
    member = world.random.choice([each for each in world.members if each.role.name == role])
    with member.held:
        yield member


def kill_of(role: str) -> Nemesis:
    """Kill a process of *role*, and start another."""

    def act(world: World) -> None:
        with _one_of(world, role) as member:
            member.kill()
            world.recorder.note("fault", member.actor, "kill")
            world.sleep(world.hold_s(0, 0.2))
            member.start()
            # Until it has begun: it takes longer on a busy machine.
            world.sleep(world.hold_s(0.7, 1.2))

    return Nemesis(f"kill-{role}-alone", act)


def lost_replies_of(role: str) -> Nemesis:
    """Keep replies to *role* back and break its connections, again and again."""

    def act(world: World) -> None:
        with _one_of(world, role) as member, world.fault("loss", member.actor):
            assert member.proxy is not None
            for _ in range(_TIMES):
                member.proxy.silent = True
                world.sleep(_SHORT_S)
                member.proxy.hang_up()
                # The connections are broken in a thread of their own.
                world.sleep(_SHORT_S)
                member.proxy.silent = False
                world.sleep(_SHORT_S)

    return Nemesis(f"lost-replies-{role}", act)


def loss_of(role: str, way: Way) -> Nemesis:
    """Break the connections of *role* within its requests, or replies, again and again."""

    def act(world: World) -> None:
        with _one_of(world, role) as member, world.fault("loss", world.hit_by(member)):
            assert member.proxy is not None
            for _ in range(_TIMES):
                member.proxy.cut(way, world.random.randrange(_FEW_BYTES))
                world.sleep(_SHORT_S * 3)

    return Nemesis(f"loss-{role}-{way}s", act)
