"""The plan of a long run: which faults are done to which protocols, in which order, by the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.subject import Subject

TOGETHER: Final = 3
"""How many kinds of faults meet in an episode."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One run: a subject, some nemeses, and the seed of their order."""

    subject: Subject
    nemeses: tuple[Nemesis, ...]
    seed: int


def episodes(
    subjects: Sequence[Subject], nemeses: Sequence[Nemesis], seed: int, together: int = TOGETHER
) -> Iterator[Episode]:
    """Yield episodes without end. Each fault is done to each protocol before any is done again."""
    for turn in itertools.count():
        queues = [_shuffled(subject, nemeses, seed, turn) for subject in subjects]
        while any(queues):
            for subject, left in zip(subjects, queues, strict=True):
                if left:
                    taken, left[:] = left[:together], left[together:]
                    yield Episode(subject, tuple(taken), _seed(seed, turn, subject, taken))
        if not any(nemesis.applies(subject) for subject in subjects for nemesis in nemeses):
            return


def cells(
    subjects: Sequence[Subject], nemeses: Sequence[Nemesis], seed: int, compose: int = 1
) -> Iterator[Episode]:
    """Yield one episode for each fault and each protocol that it applies to.

    *compose*: how many faults meet there; the seed draws the others from those that apply.
    """
    for subject, nemesis in itertools.product(subjects, nemeses):
        if nemesis.applies(subject):
            others = [each for each in nemeses if each != nemesis and each.applies(subject)]
            chance = random.Random(f"{seed} {subject.name} {nemesis.name}")
            drawn = chance.sample(others, min(compose - 1, len(others)))
            yield Episode(subject, (nemesis, *drawn), seed)


def _shuffled(subject: Subject, nemeses: Sequence[Nemesis], seed: int, turn: int) -> list[Nemesis]:
    found = [nemesis for nemesis in nemeses if nemesis.applies(subject)]
    random.Random(f"{seed} {turn} {subject.name}").shuffle(found)
    return found


def _seed(seed: int, turn: int, subject: Subject, nemeses: Sequence[Nemesis]) -> int:
    names = " ".join(nemesis.name for nemesis in nemeses)
    return random.Random(f"{seed} {turn} {subject.name} {names}").randrange(1_000_000)
