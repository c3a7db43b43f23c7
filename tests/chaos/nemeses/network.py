"""Faults of the network between a process and its server, made by the process's proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.nemeses.processes import LONG, SHORT
from tests.chaos.subject import Subject
from tests.chaos.world import World
from tests.store.proxy import Proxy, Way

_FEW_BYTES = 2_000


def _on_proxy(kind: str, disturb: Callable[[World, Proxy], None]) -> Callable[[World], None]:
    """Return a fault of one process's proxy; *disturb* returns when it is healed."""

    def act(world: World) -> None:
        with world.cut_off() as (member, proxy), world.fault(kind, world.hit_by(member)):
            disturb(world, proxy)

    return act


def _cut(_: World, proxy: Proxy) -> None:
    """Close all connections; new ones work."""
    proxy.hang_up()


def _silence(world: World, proxy: Proxy) -> None:
    """Let one connection pass nothing on, as when a NAT has forgotten it; others work."""
    if proxy.connections:
        proxy.stall(world.random.randint(max(1, proxy.connections - 2), proxy.connections))
    world.sleep(world.hold_s(*LONG))
    proxy.hang_up()


def _partition(*ways: Way) -> Callable[[World, Proxy], None]:
    def disturb(world: World, proxy: Proxy) -> None:
        proxy.held.update(ways)
        try:
            world.sleep(world.hold_s(*world.random.choice((SHORT, LONG))))
        finally:
            proxy.held.difference_update(ways)

    return disturb


def _delay(world: World, proxy: Proxy) -> None:
    """Let each piece take longer, a few times as long as a handler."""
    proxy.delay_s = world.random.uniform(0.01, 0.1)
    try:
        world.sleep(world.hold_s(*LONG))
    finally:
        proxy.delay_s = 0.0


def _lose(world: World, proxy: Proxy) -> None:
    """Break connections in the middle of requests and replies, again and again."""
    for _ in range(5):
        way: Way = world.random.choice(("request", "reply"))
        proxy.cut(way, world.random.randrange(_FEW_BYTES))
        world.sleep(world.hold_s(0, 0.2))


def _is_connected(subject: Subject) -> bool:
    return any(role.to for role in subject.roles)


NETWORK: Final = tuple(
    Nemesis(name, _on_proxy(name, disturb), _is_connected)
    for name, disturb in (
        ("cut", _cut),
        ("silent", _silence),
        ("partition", _partition("request", "reply")),
        ("partition-requests", _partition("request")),
        ("partition-replies", _partition("reply")),
        ("delay", _delay),
        ("loss", _lose),
    )
)
