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
from benchmarks.server import Place, servers


@dataclass(slots=True)
class Measured:
    """What measuring a subject brought."""

    turns: dict[str, list[Turn]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(subject: Subject, place: Place) -> Measured:
    """Run all bouts of *subject* at *place*."""
    measured = Measured()
    with ExitStack() as stack:
        running = _start(subject.players, stack, measured)
        for number, bout in enumerate(subject.bouts, 1):
            contenders = [who for who in bout.contenders if who.player.name in running]
            for round_ in range(1, bout.rounds + 1):
                title = f"{subject.name} bout {number}/{len(subject.bouts)}"
                _say(f"{title} round {round_}/{bout.rounds}: {_names(contenders)}")
                for who in contenders:
                    _turns(bout, who, running, place, measured)
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
    who: Contender,
    running: Mapping[str, Process],
    place: Place,
    measured: Measured,
) -> None:
    """Take one turn; a disturbed one once more, and of the two the quieter counts."""
    kept = measured.turns.setdefault(who.name, [])
    try:
        turn = _turn(bout, who, running, place)
        if not turn.is_quiet and bout.rounds > 1:
            _say(f"  {who.name}: others used {turn.disturbed:.0%} of the machine; once more")
            turn = min(turn, _turn(bout, who, running, place), key=lambda each: each.disturbed)
    except PlayerFailed as error:
        measured.failures.append(str(error))
        _say(f"  {error}")
        return
    kept.append(turn)


def _turn(bout: Bout, who: Contender, running: Mapping[str, Process], place: Place) -> Turn:
    process = running[who.player.name]
    prepared = bout.before(place.url, who)
    order = {"task": who.task, "url": place.url, **who.options, **prepared}
    pids = [os.getpid(), *(each.pid for each in servers())]
    pids += [each.pid for each in running.values()]
    before = Reading.take(pids)
    try:
        values = process.ask(order)
        disturbed = Reading.take(pids).others_since(before)
    finally:
        bout.after(place.url, who)
    return Turn(values, disturbed, disturbed < QUIET_BELOW)


def _names(contenders: Sequence[Contender]) -> str:
    return ", ".join(who.name for who in contenders)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
