"""Benchmarks of typed jobs: beside plain handlers and the engine, and ``tambo work`` beside others.

Celery, Dramatiq and arq run as their documentation recommends, each by its own command, on the
same Redis 8; see `benchmarks.players.tally` for how a command is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from benchmarks import chasqui
from benchmarks.chasqui import DATA, ENGINE, Part
from benchmarks.model import ROOT, Bout, Contender, Limit, Player, Ratio, Subject
from benchmarks.players import tally

_PEERS = ROOT / "tests" / "peers"
_CORES = os.cpu_count() or 1

OURS = Player("tambomq jobs", (tally.beside("python"), "-m", "benchmarks.players.tambomq_jobs"))


def _peer(name: str, folder: str) -> Player:
    home = _PEERS / folder / ".venv"
    command = (home / "bin" / "python", "-m", f"benchmarks.players.{folder}")
    return Player(name, command, needs=home / ".stamp")


# How many jobs each takes within a few seconds: to add one by one, and to drain.
OTHERS = (
    (_peer("Celery", "celery"), 3000, 2400),
    (_peer("Dramatiq", "dramatiq"), 6000, 9000),
    (_peer("arq", "arq"), 3000, 3000),
)


def subject(rounds: int, *, quick: bool) -> Subject:
    """Return the measurements, with *rounds* turns of each; *quick* does a tenth of the work."""
    part = 10 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (_typed(rounds, part), _work(rounds, part), _others(rounds, part)):
        bouts += some_bouts
        rows += some_rows
    return Subject("jobs", (OURS, ENGINE, *(player for player, *_ in OTHERS)), bouts, rows)


def _contender(name: str, player: Player, task: str, size: int, **more: Any) -> Contender:
    usual = {
        "count": size,
        "warm": size // 3,
        "data": DATA,
        "flights": 1,
        "concurrency": 100,
        "events_enabled": True,
        "processes": _CORES,
        "job": "job",
        "server": "redis8",
    }
    return Contender(name, player, task, {**usual, **more})


def _bout(contenders: Sequence[Contender], rounds: int) -> Bout:
    return Bout(contenders, rounds, chasqui._fresh, chasqui._drop)  # noqa: SLF001  (its twin)


def _typed(rounds: int, part: int) -> Part:
    typed = _contender("typed drain", OURS, "drain", 60_000 // part)
    plain = _contender("plain drain", OURS, "plain drain", 60_000 // part)
    engine = _contender("chasquimq drain", ENGINE, "drain", 30_000 // part)
    rows: list[Ratio | Limit] = [
        Ratio("drain, concurrency 100, typed ÷ a plain handler", typed, plain, 0.85, 1),
        Ratio("drain, concurrency 100, typed ÷ chasquimq", typed, engine, 4, 6),
    ]
    return [_bout((typed, plain, engine), rounds)], rows


def _work(rounds: int, part: int) -> Part:
    def burn(processes: int) -> Contender:
        title = f"tambo work with {processes} processes"
        return _contender(title, OURS, "command", 3000 // part, job="burn", processes=processes)

    one, two = burn(1), burn(2)
    rows: list[Ratio | Limit] = [
        Ratio("1 ms of CPU, --processes 2 ÷ --processes 1", two, one, 1.7, 1.9),
        Limit("start of tambo work to the first job", one, "first", "s", limit=1),
    ]
    return [_bout((one, two), rounds)], rows


def _others(rounds: int, part: int) -> Part:
    add = _contender("typed add", OURS, "add", 12_000 // part)
    work = _contender("tambo work", OURS, "command", 90_000 // part, processes=_CORES)
    adds, drains = [add], [work]
    rows: list[Ratio | Limit] = []
    for player, to_add, to_drain in OTHERS:
        adds.append(_contender(f"{player.name} add", player, "add", to_add // part))
        drains.append(_contender(f"{player.name} drain", player, "drain", to_drain // part))
        rows.append(Ratio(f"add, one by one ÷ {player.name}", add, adds[-1], 2.5, 4))
        rows.append(Ratio(f"drain of empty jobs ÷ {player.name}", work, drains[-1], 12, 20))
    return [_bout(adds, rounds), _bout(drains, rounds)], rows
