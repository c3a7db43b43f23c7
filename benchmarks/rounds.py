"""Lets contenders take turns against one server: A B C, A B C, and so on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.model import Bout, Contender, Player, Subject, Turn
from benchmarks.noise import QUIET_BELOW, Reading
from benchmarks.process import PlayerFailed, Process
from benchmarks.server import BenchServer, servers


@dataclass(slots=True)
class Measured:
    """What measuring a subject brought."""

    turns: dict[str, list[Turn]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(subject: Subject, place: BenchServer) -> Measured:
    """Run all bouts of *subject* at *place*."""
    measured = Measured()
    with ExitStack() as stack:
        running = _start(subject.players, stack, measured)
        for number, bout in enumerate(subject.bouts, 1):
            contenders = [
                contender for contender in bout.contenders if contender.player.name in running
            ]
            for round_ in range(1, bout.rounds + 1):
                title = f"{subject.name} bout {number}/{len(subject.bouts)}"
                _say(f"{title} round {round_}/{bout.rounds}: {_names(contenders)}")
                for contender in contenders:
                    _turns(bout, contender, running, place, measured)
    return measured


def _start(players: Sequence[Player], stack: ExitStack, measured: Measured) -> dict[str, Process]:
    running = {}
    for player in players:
        if player.needs is not None and not player.needs.exists():
            measured.failures.append(f"{player.name} is not installed: scripts/peers does that")
            continue
        try:
            process = stack.enter_context(Process(player))
        except (PlayerFailed, OSError) as error:
            measured.failures.append(f"{player.name} does not start: {error}")
            continue
        running[player.name] = process
        measured.versions[player.name] = process.version
    return running


def _turns(
    bout: Bout,
    contender: Contender,
    running: Mapping[str, Process],
    place: BenchServer,
    measured: Measured,
) -> None:
    """Take one turn; a disturbed one once more, and of the two the quieter counts."""
    kept = measured.turns.setdefault(contender.name, [])
    try:
        turn = _turn(bout, contender, running, place)
        if not turn.is_quiet and bout.rounds > 1:
            _say(f"  {contender.name}: others used {turn.disturbed:.0%} of the machine; once more")
            turn = min(
                turn, _turn(bout, contender, running, place), key=lambda each: each.disturbed
            )
    except PlayerFailed as error:
        measured.failures.append(str(error))
        _say(f"  {error}")
        return
    kept.append(turn)


def _turn(
    bout: Bout, contender: Contender, running: Mapping[str, Process], place: BenchServer
) -> Turn:
    process = running[contender.player.name]
    prepared = bout.before(place.url, contender)
    order = {"task": contender.task, "url": place.url, **contender.options, **prepared}
    pids = [os.getpid(), *(each.pid for each in servers())]
    pids += [each.pid for each in running.values()]
    before = Reading.take(pids)
    try:
        values = process.ask(order)
        disturbed = Reading.take(pids).others_since(before)
    finally:
        bout.after(place.url, contender)
    return Turn(values, disturbed, disturbed < QUIET_BELOW)


def _names(contenders: Sequence[Contender]) -> str:
    return ", ".join(contender.name for contender in contenders)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
