"""Faults of Redis: killed, stopped, without its scripts or its data, and refusing to write."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from tests.chaos.nemeses.nemesis import Nemesis, may_lose_all, uses_redis
from tests.chaos.nemeses.processes import LONG, SHORT
from tests.chaos.world import World
from tests.servers.refusal import Refusal, refusing_writes

FLUSHALL: Final = "flushall"
_USED_SHARE: Final = 0.9


def _on_server(kind: str, disturb: Callable[[World], None]) -> Callable[[World], None]:
    """Return a fault of the server; when *disturb* returns, it recovers."""

    def act(world: World) -> None:
        with world.server_held, world.fault(kind):
            disturb(world)
            world.recovered()

    return act


def _kill(world: World) -> None:
    """As the kernel does when memory is short, too."""
    world.server.kill()
    world.sleep(world.hold_s(0, 1))
    world.server.restart()


def _stop(between: tuple[float, float]) -> Callable[[World], None]:
    def disturb(world: World) -> None:
        os.kill(world.server.pid, signal.SIGSTOP)
        try:
            world.sleep(world.hold_s(*between))
        finally:
            os.kill(world.server.pid, signal.SIGCONT)

    return disturb


def _forget_scripts(world: World) -> None:
    world.db.script_flush()


def _forget_everything(world: World) -> None:
    """Lose all data. Queues that have to be created are created again in the same step."""
    with world.db.pipeline(transaction=True) as pipeline:
        pipeline.flushall()
        for command in world.refill():
            pipeline.execute_command(*command)
        pipeline.execute()


def _refuse(why: Refusal) -> Callable[[World], None]:
    def disturb(world: World) -> None:
        with refusing_writes(world.server, why):
            world.sleep(world.hold_s(*world.random.choice((SHORT, LONG))))

    return disturb


def _fill_memory(world: World) -> None:
    """Allow less memory than is used: writes that need more are refused (OOM)."""
    used = world.db.info("memory")["used_memory"]
    world.db.config_set("maxmemory", int(used * _USED_SHARE))
    try:
        world.sleep(world.hold_s(*world.random.choice((SHORT, LONG))))
    finally:
        world.db.config_set("maxmemory", 0)


SERVERS: Final = tuple(
    Nemesis(name, _on_server(name, disturb), may_lose_all if name == FLUSHALL else uses_redis)
    for name, disturb in (
        ("kill-redis", _kill),
        ("stop-redis-short", _stop(SHORT)),
        ("stop-redis-long", _stop(LONG)),
        ("script-flush", _forget_scripts),
        (FLUSHALL, _forget_everything),
        ("misconf", _refuse("MISCONF")),
        ("noreplicas", _refuse("NOREPLICAS")),
        ("readonly", _refuse("READONLY")),
        ("oom", _fill_memory),
    )
)
