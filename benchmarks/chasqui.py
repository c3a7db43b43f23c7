"""Benchmarks of ChasquiMQ: TamboMQ beside the released engine and BullMQ, and TamboMQ alone.

The engine needs Redis >= 8.6, so comparisons run on a Redis 8 of the harness; the rows on the
embedded Valkey have TamboMQ alone. Python runs on uvloop, handlers do nothing, a job has a name
and about 100 bytes, and each contender fills the queue that it drains.

The engine trims at its cap, TamboMQ refuses; both caps are far above the number of jobs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

from benchmarks.model import ROOT, Bout, Contender, Limit, Player, Ratio, Subject
from benchmarks.process import PlayerFailed
from benchmarks.server import NoServer, beside
from tambomq.chasqui.keys import Keys
from tambomq.store.call import Call
from tambomq.store.sync import Store

DATA = {
    "order": 12345,
    "customer": "c-000017",
    "items": ["a", "b", "c"],
    "note": "x" * 40,
    "paid": True,
}
_PEERS = ROOT / "tests" / "peers"
_serial = count()

OURS = Player("tambomq", (sys.executable, "-m", "benchmarks.players.tambomq_chasqui"))
IDLE = Player("tambo serve", (sys.executable, "-m", "benchmarks.players.chasqui_idle"))
ENGINE = Player(
    "chasquimq",
    (_PEERS / "chasquimq" / ".venv" / "bin" / "python", "-m", "benchmarks.players.chasquimq"),
    needs=_PEERS / "chasquimq" / ".venv" / ".stamp",
)
BULLMQ = Player(
    "BullMQ",
    (shutil.which("node") or "node", ROOT / "benchmarks" / "players" / "bullmq.js"),
    env={"NODE_PATH": str(_PEERS / "bullmq" / "node_modules")},
    needs=_PEERS / "bullmq" / "node_modules" / ".stamp",
)

Part: TypeAlias = tuple[Sequence[Bout], Sequence[Ratio | Limit]]


def subject(rounds: int, *, quick: bool) -> Subject:
    """Return the measurements, with *rounds* turns of each; *quick* does a tenth of the work."""
    part = 10 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (
        _drains(rounds, part),
        _adds(rounds, part),
        _latency(min(rounds, 3), part),
        _embedded(rounds, part),
        _alone(part),
        _idle(part),
    ):
        bouts += some_bouts
        rows += some_rows
    return Subject("chasqui", (OURS, IDLE, ENGINE, BULLMQ), bouts, rows)


def _contender(name: str, player: Player, task: str, size: int, **more: Any) -> Contender:
    usual = {
        "count": size,
        # V8 and the allocators of all three settle within this.
        "warm": size // 3,
        "data": DATA,
        "flights": 1,
        "concurrency": 100,
        "events_enabled": True,
        "server": "redis8",
    }
    return Contender(name, player, task, {**usual, **more})


def _drains(rounds: int, part: int) -> Part:
    def of(name: str, player: Player, size: int, **more: Any) -> Contender:
        return _contender(name, player, "drain", size // part, **more)

    ours = of("drain", OURS, 90_000)
    engine = of("chasquimq drain", ENGINE, 30_000)
    bullmq = of("BullMQ drain", BULLMQ, 30_000)
    silent = of("drain without events", OURS, 90_000, events_enabled=False)
    engine_silent = of("chasquimq drain without events", ENGINE, 45_000, events_enabled=False)
    single = of("drain one by one", OURS, 60_000, concurrency=1)
    engine_single = of("chasquimq drain one by one", ENGINE, 6000, concurrency=1)
    rows: list[Ratio | Limit] = [
        Ratio("drain, concurrency 100 ÷ chasquimq", ours, engine, 5, 8),
        Ratio("drain, concurrency 1 ÷ chasquimq", single, engine_single, 18, 40),
        Ratio("drain, concurrency 100 ÷ BullMQ", ours, bullmq, 4.5, 8),
        Limit("drain, concurrency 100, events off", silent, "rate", "/s"),
        Limit("the same by chasquimq", engine_silent, "rate", "/s"),
    ]
    contenders = (ours, engine, bullmq, silent, engine_silent, single, engine_single)
    return [Bout(contenders, rounds, _fresh, _drop)], rows


def _adds(rounds: int, part: int) -> Part:
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for title, task, flights, sizes, bounds in (
        ("add, awaited one by one", "add", 1, (12_000, 6000), (3, 4)),
        ("add, 100 adders", "add", 100, (90_000, 30_000), (5, 8)),
        ("add_bulk of 1,000", "add_bulk", 1, (150_000, 90_000), (2.5, 4)),
    ):
        size, engine_size = (each // part for each in sizes)
        ours = _contender(title, OURS, task, size, flights=flights)
        engine = _contender(f"chasquimq {title}", ENGINE, task, engine_size, flights=flights)
        rows.append(Ratio(f"{title} ÷ chasquimq", ours, engine, *bounds))
        bouts.append(Bout((ours, engine), rounds, _fresh, _drop))
    return bouts, rows


def _latency(rounds: int, part: int) -> Part:
    def of(name: str, player: Player, **more: Any) -> Contender:
        size = max(500 // part, 200)
        return _contender(name, player, "latency", size, warm=100, per_s=200, **more)

    ours, engine = of("latency", OURS), of("chasquimq latency", ENGINE)
    title = "add to handler at 200/s"
    rows: list[Ratio | Limit] = [
        # The bounds are those of p50 upside down: at most 0.5 and 0.3 of chasquimq's.
        Ratio(f"{title}, 1 ÷ p50 ÷ chasquimq", ours, engine, 2, 3, "inverse"),
        Limit(f"{title}, p50", ours, "p50", "ms"),
        Limit(f"{title}, p99", ours, "p99", "ms"),
        Limit("the same by chasquimq, p50", engine, "p50", "ms"),
        Limit("the same by chasquimq, p99", engine, "p99", "ms"),
    ]
    return [Bout((ours, engine), rounds, _fresh, _drop)], rows


def _embedded(rounds: int, part: int) -> Part:
    def of(name: str, task: str, size: int, **more: Any) -> Contender:
        return _contender(f"{name} on Valkey", OURS, task, size // part, server="valkey", **more)

    drain = of("drain", "drain", 90_000)
    add = of("add", "add", 12_000)
    adders = of("add, 100 adders", "add", 90_000, flights=100)
    bulk = of("add_bulk", "add_bulk", 150_000)
    rows = [
        Limit("embedded Valkey: drain, concurrency 100", drain, "rate", "/s"),
        Limit("embedded Valkey: add, awaited one by one", add, "rate", "/s"),
        Limit("embedded Valkey: add, 100 adders", adders, "rate", "/s"),
        Limit("embedded Valkey: add_bulk of 1,000", bulk, "rate", "/s"),
    ]
    return [Bout((drain, add, adders, bulk), rounds, _fresh, _drop)], rows


def _alone(part: int) -> Part:
    jobs, delayed = 1_000_000 // part, 200_000 // part
    worker = _contender("worker", OURS, "memory", jobs)
    promote = _contender(
        "promote", OURS, "promote", delayed, flights=100, due_in_s=max(20 // part, 4)
    )
    within_s = delayed / 20_000
    rows = [
        Limit(f"worker's growth over {jobs:,} jobs", worker, "growth", "MB", limit=5),
        Limit(f"worker's rate over {jobs:,} jobs", worker, "rate", "/s"),
        Limit(f"{delayed:,} jobs due at once, promoted in", promote, "took", "s", within_s),
        Limit("their promotion, rate", promote, "rate", "/s"),
        Limit("their promotion, slowest script", promote, "script", "ms", limit=10),
    ]
    return [Bout((worker,), 1, _fresh, _drop), Bout((promote,), 1, _fresh, _drop)], rows


def _idle(part: int) -> Part:
    queues = 1000 // part
    more = {"queues": queues, "seconds": 20 // part, "step": max(queues // 100, 1)}
    serve = _contender("serve", IDLE, "idle", 1, server="valkey", **more)
    rows = [
        Limit(f"{queues:,} idle queues: tambo serve's CPU", serve, "cpu", "%", limit=5),
        Limit("a due job of one of them is late by, p50", serve, "late", "ms", limit=100),
    ]
    return [Bout((serve,), 3, _fresh, _drop)], rows


def _fresh(_url: str, contender: Contender) -> Mapping[str, Any]:
    """Return the order for a server: an unused queue, and another one to warm up with."""
    queue = f"bench-{next(_serial)}"
    return {"url": _server(contender), **_names(queue), "warming": _names(f"{queue}-warm")}


def _names(queue: str) -> dict[str, str]:
    keys = Keys(queue)
    return {
        "queue": queue,
        "stream": keys.stream,
        "delayed": keys.delayed,
        "events": keys.events,
    }


def _server(contender: Contender) -> str:
    try:
        return beside(contender.options["server"]).url
    except NoServer as error:
        raise PlayerFailed(str(error)) from error


def _drop(_url: str, contender: Contender) -> None:
    """Delete what a turn left. The servers are the benchmark's own, so nothing else is lost."""
    store = Store(_server(contender))
    store.run(Call("FLUSHDB", (), (), bool))
    store.close()
