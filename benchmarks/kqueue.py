"""KqueueMsgQ benchmarks: our server compared with nats-server, under the same load generator.

Frames are built before the clock starts and compared as they arrive, so the server and the kernel
are measured. Rates are delivered messages: one that goes to ten consumers counts ten.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.model import Bout, Contender, Limit, Player, Ratio, Subject

MIB = 1024 * 1024
# Bytes in flight to the slowest consumer. Half of what our server buffers for one and a sixteenth
# of what nats-server does: no message is dropped, and neither gets faster with more.
WINDOW = 4 * MIB
# Memory bound: the write buffer of the slow reader, and the bytes in flight to the fast ones.
MEMORY_WINDOW, MAX_BUFFER, FAST = MIB // 4, 8 * MIB, 50
WARM_MS, TIMED_MS = 250, 750


def _player(name: str, broker: str) -> Player:
    return Player(name, (sys.executable, "-m", "benchmarks.players.kqueue_load", broker))


OURS = _player("tambomq", "tambomq")
ASYNCIO = _player("tambomq on asyncio", "asyncio")
NATS = _player("nats-server", "nats")
REDIS = _player("Redis PUBLISH", "redis")
RELAY = _player("relay", "relay")

Part: TypeAlias = tuple[Sequence[Bout], Sequence[Ratio | Limit]]


def subject(rounds: int, *, quick: bool) -> Subject:
    """The measurements, with *rounds* rounds of each; *quick* is a shorter time for each."""
    part = 4 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (
        _compared(rounds, part),
        _anchors(min(rounds, 3), part),
        _shapes(min(rounds, 3), part),
        _memory(part),
    ):
        bouts += some_bouts
        rows += some_rows
    return Subject("kqueue", (OURS, ASYNCIO, NATS, REDIS, RELAY), bouts, rows)


def _contender(
    title: str, player: Player, part: int, shape: Mapping[str, Any], task: str = "pump"
) -> Contender:
    usual = {
        "size": 100,
        "names": 1,
        "producers": 1,
        "consumers": 1,
        "single": False,
        "window": WINDOW,
        "warm_ms": WARM_MS // part,
        "timed_ms": TIMED_MS // part,
    }
    return Contender(f"{player.name}: {title}", player, task, {**usual, **shape})


def _compared(rounds: int, part: int) -> Part:
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for title, shape, floor, aim in (
        ("bulk, 1 to 1", {}, 1.8, 3),
        ("bulk, 1 to 10", {"consumers": 10}, 4, 6),
        ("1,000 names in turn, 1 to 1", {"names": 1000}, 1.1, 2),
    ):
        ours = _contender(title, OURS, part, shape)
        nats = _contender(title, NATS, part, shape)
        asyncio = _contender(title, ASYNCIO, part, shape)
        rows.append(Ratio(f"{title}, 100 B ÷ nats-server", ours, nats, floor, aim))
        rows.append(Limit("the same on asyncio's own loop", asyncio, "rate", "/s"))
        bouts.append(Bout((ours, nats, asyncio), rounds))
    return bouts, rows


def _anchors(rounds: int, part: int) -> Part:
    redis = _contender("bulk, 1 to 1", REDIS, part, {})
    relay = _contender("bulk, 1 to 1", RELAY, part, {})
    rows = [
        Limit("bulk, 1 to 1, 100 B, by Redis PUBLISH", redis, "rate", "/s"),
        Limit("bulk, 1 to 1, 100 B, by a relay that reads nothing", relay, "rate", "/s"),
    ]
    return [Bout((redis, relay), rounds)], rows


def _shapes(rounds: int, part: int) -> Part:
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for title, shape in (
        ("bulk, 1 to 1, 16 B", {"size": 16}),
        ("bulk, 1 to 1, 1 KiB", {"size": 1024}),
        ("bulk, 1 to 1, 64 KiB", {"size": 65_536}),
        ("a write for each message, 1 to 1, 16 B", {"size": 16, "single": True}),
        ("a write for each message, 1 to 1, 100 B", {"single": True}),
        ("bulk, 1 to 50, 100 B", {"consumers": 50}),
        ("bulk, 10 to 1, 100 B", {"producers": 10}),
    ):
        ours = _contender(title, OURS, part, shape)
        nats = _contender(title, NATS, part, shape)
        rows.append(Limit(title, ours, "rate", "/s"))
        rows.append(Limit("the same by nats-server", nats, "rate", "/s"))
        bouts.append(Bout((ours, nats), rounds))
    return bouts, rows


def _memory(part: int) -> Part:
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    bound_mb = round((MAX_BUFFER + FAST * MEMORY_WINDOW) / 1e6, 1)
    shape = {"consumers": FAST, "window": MEMORY_WINDOW, "size": 1024}
    times = {"warm_ms": 0, "timed_ms": max(4000 // part, 2000)}
    for policy in ("disconnect", "drop", "block"):
        title = f"{FAST} readers and one of 1 KB/s, {policy}"
        contender = _contender(title, OURS, part, {**shape, **times, "slow": policy}, "memory")
        rows += [
            Limit(f"{title}: memory before", contender, "before", "MB"),
            Limit(f"{title}: growth at the peak", contender, "growth", "MB", limit=bound_mb),
            Limit(f"{title}: rate", contender, "rate", "/s"),
        ]
        bouts.append(Bout((contender,), 1))
    return bouts, rows
