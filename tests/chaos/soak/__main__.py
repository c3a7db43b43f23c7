"""Runs a soak: ``python -m tests.chaos.soak --hours 8 --rate 1000 --dir <directory>``.

The directory keeps what was found so far: a soak that was ended is resumed there, until it has
lasted for so many hours in all.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.chaos.soak.gauges import MAX_MORE_FDS, Growth, is_flat
from tests.chaos.soak.load import LoadedSubject, running
from tests.chaos.soak.record import record

FAULT_EVERY_S: Final = 30.0
SAMPLE_EVERY_S: Final = 5.0
LINE_EVERY_S: Final = 60.0
DRAIN_S: Final = 180.0
_TICK_S: Final = 0.5


@dataclass(slots=True)
class Totals:
    """What a soak came to, over all its legs."""

    seconds: float = 0.0
    legs: int = 0
    confirmed: int = 0
    in_time: int = 0
    """Messages that were confirmed between the start of all processes and the end of the time."""
    completed: int = 0
    lost: int = 0
    left: int = 0
    """Messages that nobody had handled when senders had ended and `DRAIN_S` was over."""
    doubles: int = 0
    allowed_doubles: int = 0
    kills: int = 0
    starved: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    growing: list[str] = field(default_factory=list)
    """What was not flat: memory, descriptors or keys."""
    slopes_mb_h: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of the processes that lived long enough; and the lower bound of each."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Processor time by subject, and that of this process, which has the proxies."""
    lake: dict[str, int] = field(default_factory=dict)
    """Rows of the lake, and messages that should be there."""
    subjects: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether all promises were kept."""
        return not (
            self.lost
            or self.left
            or self.doubles > self.allowed_doubles
            or self.crashed
            or self.growing
            or self.lake.get("missing")
            or self.lake.get("twice")
        )


def main(words: list[str]) -> int:
    """Run, or resume, a soak; return the exit code."""
    given = _arguments(words)
    given.dir.mkdir(parents=True, exist_ok=True)
    state = given.dir / "state.json"
    totals = Totals(**json.loads(state.read_text())) if state.exists() else Totals()
    left_s = given.hours * 3600 - totals.seconds
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    if left_s > 0:
        totals.legs += 1
        with tempfile.TemporaryDirectory(prefix="leg-", dir=given.dir) as folder:
            _leg(totals, Path(folder), left_s, given, stopping)
        state.write_text(json.dumps(asdict(totals), indent=2))
    verdict = "passes" if totals.passes else "FAILS"
    text = record(asdict(totals), verdict, rate=given.rate, seed=given.seed)
    (given.dir / "record.md").write_text(text)
    print(json.dumps({**asdict(totals), "verdict": verdict}, indent=2))  # noqa: T201
    print(text)  # noqa: T201
    return 0 if totals.passes else 1


def _leg(
    totals: Totals, folder: Path, left_s: float, given: Any, stopping: threading.Event
) -> None:
    """Run until the soak is over or stopped; add what was found to *totals*."""
    chance = random.Random(f"{given.seed} {totals.legs}")
    load = running(folder, given.rate, given.seed, stopping)
    with load as subjects, ThreadPoolExecutor(1) as faults:
        faults.submit(_seed, subjects)
        before, began = _confirmed(subjects), time.monotonic()
        do_fault = partial(faults.submit, _fault, totals, chance, subjects)
        _watch(totals, subjects, left_s, stopping, do_fault)
        totals.in_time += _confirmed(subjects) - before
        totals.seconds += time.monotonic() - began
        for each in subjects:
            each.world.over.set()
        faults.submit(lambda: None).result()
        _close(totals, subjects)


def _watch(
    totals: Totals,
    subjects: list[LoadedSubject],
    for_s: float,
    stopping: threading.Event,
    do_fault: Callable[[], object],
) -> None:
    """Read what is new, sample the gauges and ask for faults, until the time is over."""
    began, turn = time.monotonic(), 0
    fault_at, sample_at, line_at = FAULT_EVERY_S, SAMPLE_EVERY_S, LINE_EVERY_S
    while not stopping.wait(_TICK_S) and (at := time.monotonic() - began) < for_s:
        if at >= fault_at:
            fault_at += FAULT_EVERY_S
            do_fault()
        # Often, and so little at once: the proxies are threads of this process.
        subjects[turn := (turn + 1) % len(subjects)].look()
        if at >= sample_at:
            sample_at += SAMPLE_EVERY_S
            for each in subjects:
                each.sample()
        if at >= line_at:
            line_at += LINE_EVERY_S
            _line(at, totals, subjects)


def _close(totals: Totals, subjects: list[LoadedSubject]) -> None:
    """End the senders, wait until nothing is left to do, and add up."""
    for each in subjects:
        each.sample()
        each.end_senders()
    until = time.monotonic() + DRAIN_S
    for each in subjects:
        each.drain(until)
    for each in subjects:
        each.end_others()
    for each in subjects:
        each.close_books()
        _add(totals, each)
    totals.cpu_s["this process, with the proxies"] = round(time.process_time(), 1)


def _confirmed(subjects: list[LoadedSubject]) -> int:
    """How many messages were confirmed up to now."""
    for each in subjects:
        each.look()
    return sum(each.ledger.confirmed for each in subjects)


def _seed(subjects: list[LoadedSubject]) -> None:
    for number, each in enumerate(subjects):
        each.world.seed_thread(number)


def _fault(totals: Totals, chance: random.Random, subjects: list[LoadedSubject]) -> None:
    each = chance.choice(subjects)
    nemesis = chance.choice(each.nemeses)
    try:
        nemesis.act(each.world)
    except Exception as error:  # noqa: BLE001  (the soak goes on, and says so)
        totals.crashed.append(f"{nemesis.name} of {each.subject.name}: {error!r}")
    each.faults += 1
    totals.faults[nemesis.name] = totals.faults.get(nemesis.name, 0) + 1


def _line(at_s: float, totals: Totals, subjects: list[LoadedSubject]) -> None:
    slopes = [growth.slope for each in subjects for _, growth in _growths(each)]
    ledgers = [each.ledger for each in subjects]
    doubles = sum(each.doubles for each in ledgers)
    words = (
        f"{at_s / 60:5.0f} min",
        f"confirmed {sum(each.confirmed for each in ledgers):9,}",
        f"open {sum(len(each.open) for each in ledgers):6,}",
        f"lost {sum(each.lost for each in subjects)}",
        f"doubles {doubles} (at most {sum(each.allowed_doubles for each in subjects)})",
        f"faults {sum(totals.faults.values())}",
        f"memory {max(slopes):+.2f} MB/h at most" if slopes else "memory not known yet",
        f"keys {sum(each.keys[-1] for each in subjects)}",
    )
    print("  ".join(words), flush=True)  # noqa: T201


def _growths(each: LoadedSubject) -> list[tuple[str, Growth]]:
    found = ((f"{each.subject.name} {actor}", g.growth) for actor, g in each.gauges.items())
    return [(name, growth) for name, growth in found if growth is not None]


def _add(totals: Totals, each: LoadedSubject) -> None:
    ledger, name = each.ledger, each.subject.name
    counts = {
        "confirmed": ledger.confirmed,
        "completed": ledger.completed,
        "lost": each.lost,
        "left": each.left,
        "doubles": ledger.doubles,
        "allowed_doubles": each.allowed_doubles,
        "kills": each.kills,
        "starved": ledger.starved,
    }
    before = totals.subjects.setdefault(name, dict.fromkeys(counts, 0))
    for word, count in counts.items():
        before[word] = before.get(word, 0) + count
        setattr(totals, word, getattr(totals, word) + count)
    totals.crashed += [f"{actor} of {name}: {code}" for actor, code, _ in each.world.crashes]
    if ledger.doubles > each.allowed_doubles:
        totals.growing.append(f"doubles of {name}: {ledger.doubles}")
    for process, growth in _growths(each):
        totals.slopes_mb_h[process] = round(growth.slope, 2), round(growth.at_least, 2)
        if growth.is_leak:
            totals.growing.append(
                f"memory of {process}: {growth.slope:.2f} MB/h, {growth.at_least:.2f} at least"
            )
    for word, count in each.lake.items():
        totals.lake[word] = totals.lake.get(word, 0) + count
    cpu_s = sum(gauges.cpu_s for gauges in each.gauges.values())
    totals.cpu_s[name] = round(totals.cpu_s.get(name, 0.0) + cpu_s, 1)
    for actor, gauges in each.gauges.items():
        if gauges.more_fds > MAX_MORE_FDS:
            totals.growing.append(f"descriptors of {name} {actor}: {gauges.more_fds} more")
    if not is_flat(each.keys):
        totals.growing.append(f"keys of {name}: {each.keys[:: max(1, len(each.keys) // 20)]}")


def _arguments(words: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=Path("build/soak"))
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
