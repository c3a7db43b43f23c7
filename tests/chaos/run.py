"""A chaos run: starts a subject, lets nemeses act, heals, waits until all is done, and checks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from tests.chaos.checker import Verdict, Violation, check
from tests.chaos.history import Action, Recorder, read
from tests.chaos.member import ROOT, Surroundings
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.redis_server import redis_server
from tests.chaos.subject import Subject
from tests.chaos.world import World
from tests.servers import eventually

AT_ONCE: Final = 2
"""How many nemeses act at the same time, if there are so many."""
PATIENCE_S: Final = 40.0
"""How long nothing may become less at the end until it counts as stuck."""
READY_S: Final = 300.0
"""How long processes may need on an idle machine until they do what they are there for."""
DRAIN_S: Final = 300.0
_LOOK_EVERY_S = 0.1


def run(
    subject: Subject,
    nemeses: Sequence[Nemesis],
    *,
    seconds: float,
    seed: int,
    folder: Path,
    source: Path | None = None,
    older: Path | None = None,
    lease_s: float = 2.0,
    pause_s: float = 2.0,
    patience_s: float = PATIENCE_S,
    at_once: int = AT_ONCE,
) -> Verdict:
    """Do *nemeses* to *subject* for so many *seconds*, and return what its history shows.

    The seed chooses the order of the nemeses, their victims, their lengths and the pauses between
    them, *pause_s* on average; *at_once* of them act at the same time. At the end nothing may stay
    for *patience_s* without becoming less.
    Histories and logs of the processes are written into *folder*.
    *source*: the sources that the processes run, instead of those of this tree; *older*: those of
    an earlier version, which the nemesis ``upgrade`` needs.
    """
    with redis_server(frozenset(shim for each in nemeses for shim in each.shims)) as redis:
        given = Surroundings(folder, seed, lease_s, source or ROOT / "src", older)
        world = World(redis, subject.roles, given)
        world.refill = partial(subject.refill, world)
        world.is_ready = partial(subject.is_ready, world)
        subject.prepare(world)
        with world.running():
            eventually(world.is_ready, within_s=READY_S)
            seconds, pause_s = seconds * subject.slowness, pause_s * subject.slowness
            acted = _disturb(world, nemeses, seconds, pause_s, at_once)
            stuck = _drain(world, subject, patience_s * subject.slowness)
            _end(world)
        _record_rest(world, subject)
        world.close()
    verdict = check(read(folder), subject.promises(lease_s))
    counts = verdict.counts | {f"did {name}": count for name, count in sorted(acted.items())}
    return replace(verdict, counts=counts, violations=(*verdict.violations, *_noted(world, stuck)))


def _disturb(
    world: World, nemeses: Sequence[Nemesis], seconds: float, pause_s: float, at_once: int
) -> Counter[str]:
    """Let the nemeses act; return how often each of them has."""
    count = min(at_once, len(nemeses))
    with ThreadPoolExecutor(max(1, count)) as threads:
        turns: list[Future[Counter[str]]] = [
            threads.submit(_act_in_turn, world, nemeses[number::count], number, pause_s)
            for number in range(count)
        ]
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until and not any(each.done() for each in turns):
                world.restart_crashed()
                world.over.wait(_LOOK_EVERY_S)
        finally:
            world.over.set()
        return sum((each.result() for each in turns), Counter[str]())


def _act_in_turn(
    world: World, nemeses: Sequence[Nemesis], number: int, pause_s: float
) -> Counter[str]:
    """Let each of *nemeses* act, in an order of the seed, again and again."""
    world.seed_thread(number)
    acted: Counter[str] = Counter()
    while True:
        for nemesis in world.random.sample(nemeses, len(nemeses)):
            world.sleep(pause_s * world.random.uniform(0.5, 1.5))
            world.wait_ready()
            if world.over.is_set():
                return acted
            nemesis.act(world)
            acted[nemesis.name] += 1


def _drain(world: World, subject: Subject, patience_s: float) -> list[str]:
    """End the senders and wait until nothing is pending; return what does not become less."""
    world.end(member for member in world.members if member.role.sends)
    least, changed = -1, time.monotonic()
    until = changed + max(DRAIN_S, patience_s * 4)
    while left := list(subject.pending(world)):
        world.restart_crashed()
        now = time.monotonic()
        # What is not there yet can make nothing less: Java takes its time to start.
        if least < 0 or len(left) < least or not world.is_ready():
            least, changed = len(left), now
        if now > min(until, changed + patience_s):
            return left
        time.sleep(_LOOK_EVERY_S)
    return []


def _end(world: World) -> None:
    """Ask all processes to end, the servers last."""
    world.restart_crashed()
    world.end(sorted(world.members, key=lambda each: each.role.serves))


def _record_rest(world: World, subject: Subject) -> None:
    """Record what the server has at the end."""
    notes: Iterator[tuple[str, Action, str]] = chain(
        (("rest", "stored", text) for text in subject.pending(world)),
        (("rest", "dead", text) for text in subject.dead(world)),
        ((actor, "run", text) for actor, text in subject.arrivals(world)),
        ((actor, "run", text) for actor, text in subject.results(world)),
    )
    with ExitStack() as stack:
        recorders: dict[str, Recorder] = {}
        for actor, action, text in notes:
            if actor not in recorders:
                recorders[actor] = Recorder(world.folder, actor)
                stack.callback(recorders[actor].close)
            recorders[actor].note(action, text)


def _noted(world: World, stuck: Sequence[str]) -> list[Violation]:
    """Return violations that no history shows: of processes that ended, of messages that stay."""
    crashed = [
        Violation("crashed", f"{actor} ended with {code}:\n{lines}", ())
        for actor, code, lines in world.crashes
    ]
    return [*crashed, *(Violation("stuck", text, ()) for text in stuck)]
