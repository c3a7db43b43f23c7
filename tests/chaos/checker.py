"""The checker: a history in, a verdict out. It starts nothing and reads no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.chaos.history import Event
from tests.chaos.operations import CLOCK, KILLS, Disturbance, Operation, disturbances, operations

EXCUSED_SHARE: Final = 0.4
"""A worker that was silent for this share of its lease may have lost it: it renews at a third."""
EARLY_S: Final = 0.05
"""How much sooner than due a message may run: clocks are read at different moments."""

TAKEN_OVER_S: Final = 2.0
"""How long after the end of a lease another worker may need: it looks once a second."""
STARTED_S: Final = 10.0
"""How long after it was killed a worker may be missing to others."""
BUSY: Final = 10
"""Workers that have so many messages may have no room for another one."""


@dataclass(frozen=True, slots=True)
class Promises:
    """What a protocol promises, and so what is checked."""

    lease_s: float = 1.0
    """After this time without a renewal, a message may run elsewhere."""
    keeps: bool = True
    """A confirmed message is completed, dead or stored in the end."""
    replicated: bool = False
    """A confirmed message is kept even if the server that confirmed it is lost."""
    exclusive: bool = True
    """A message runs in one place at a time, and only once unless a fault hit its worker."""
    takes_over: bool = False
    """What a killed worker had is run by another soon after the end of the lease."""
    once: bool = False
    """No consumer gets a message twice, whatever happens."""
    ordered: bool = False
    """A consumer gets the messages of one sender and key in the order of sending."""
    completed_by: frozenset[str] = frozenset()
    """The roles that each have every message in the end; without any, one run is enough."""
    budget: int | None = None
    """After this many failed runs a message is dead."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, and the shortest excerpt of the history that shows it."""

    kind: str
    message: str
    excerpt: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The violations of a history, and what it was made of."""

    violations: tuple[Violation, ...]
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, int]:
        """How many violations there are of each kind."""
        found: dict[str, int] = defaultdict(int)
        for violation in self.violations:
            found[violation.kind] += 1
        return dict(found)


@dataclass(frozen=True, slots=True)
class Facts:
    """A history, sorted into what the checks ask for."""

    sends: dict[str, list[Operation]]
    runs: dict[str, list[Operation]]
    stored: dict[str, Event]
    dead: dict[str, Event]
    faults: list[Disturbance]

    def affected(self, actor: str, since: float, until: float, least_s: float = 0.0) -> bool:
        """Whether a fault hit *actor* for *least_s* or longer between two times."""
        return any(
            fault.hits(actor) and fault.can_cost_lease(since, until, least_s)
            for fault in self.faults
        )

    def disturbed(self, kill: Disturbance, until: float) -> bool:
        """Whether another fault may keep what *kill* has freed from being run until then."""
        return any(
            kill.since - fault.since < STARTED_S
            if fault.kind in KILLS
            else fault.overlap_s(kill.since, until) >= 0
            for fault in self.faults
            if fault != kill and fault.since <= until
        )

    def has_forgotten(self, since: float, until: float) -> bool:
        """Whether the server may have forgotten between two times what was settled."""
        return any(fault.forgets and fault.overlap_s(since, until) >= 0 for fault in self.faults)


def lost(facts: Facts, promises: Promises, *, excused: bool) -> Iterator[Operation]:
    """Yield the confirmed sends of lost messages: those that a fault excuses, or the others."""
    for message, sends in facts.sends.items():
        confirmed = [each for each in sends if each.outcome == "ok"]
        completed = _is_completed(facts.runs.get(message, ()), promises)
        if confirmed and not completed and message not in facts.dead | facts.stored:
            may_be_lost = any(
                fault.may_lose(confirmed[0].until, is_replicated=promises.replicated)
                for fault in facts.faults
            )
            if may_be_lost is excused:
                yield confirmed[0]


def _is_completed(runs: Iterable[Operation], promises: Promises) -> bool:
    by = {_role(run.begin.actor).rpartition("-")[0] for run in runs if run.outcome == "ok"}
    return bool(by) and promises.completed_by <= by


def check(history: Sequence[Event], promises: Promises) -> Verdict:
    """Return every promise that *history* breaks."""
    facts = _facts(history)
    violations = [
        violation
        for enabled, find in _checks(promises)
        if enabled
        for violation in find(facts, promises)
    ]
    counts = _counts(facts, max(1, len(promises.completed_by)))
    if promises.keeps:
        counts["lost, excused"] = sum(1 for _ in lost(facts, promises, excused=True))
    return Verdict(tuple(violations), counts)


def _checks(
    promises: Promises,
) -> list[tuple[bool, Callable[[Facts, Promises], Iterator[Violation]]]]:
    return [
        (True, _from_nowhere),
        (promises.keeps, _lost),
        (True, _refused_and_kept),
        (promises.exclusive, _overlapping),
        (promises.exclusive, _repeated),
        (promises.takes_over, _left_alone),
        (promises.once, _doubled),
        (promises.ordered, _disordered),
        (promises.budget is not None, _over_budget),
        (promises.budget is not None, _buried_early),
        (True, _early),
    ]


def _facts(history: Sequence[Event]) -> Facts:
    history = sorted(history, key=lambda each: each.at)
    faults = disturbances(history)
    return Facts(
        operations(history, "send", faults),
        operations(history, "run", faults),
        {event.message: event for event in history if event.action == "stored"},
        {event.message: event for event in history if event.action == "dead"},
        faults,
    )


def _counts(facts: Facts, times: int) -> dict[str, int]:
    """Count what a history has; each message is completed so many *times*."""
    sends = [each for sent in facts.sends.values() for each in sent]
    runs = [each for run in facts.runs.values() for each in run]
    again = sum(
        max(0, sum(run.outcome == "ok" for run in each) - times) for each in facts.runs.values()
    )
    return {
        "sent": len(sends),
        "confirmed": sum(each.outcome == "ok" for each in sends),
        "unknown": sum(each.outcome == "unknown" for each in sends),
        "runs": len(runs),
        "completed": sum(any(run.outcome == "ok" for run in each) for each in facts.runs.values()),
        "completed again": again,
        "dead": len(facts.dead),
        "stored": len(facts.stored),
        "faults": len(facts.faults),
    }


def _from_nowhere(facts: Facts, _: Promises) -> Iterator[Violation]:
    found = [
        *((message, runs[0].events) for message, runs in facts.runs.items()),
        *((message, (event,)) for message, event in facts.dead.items()),
        *((message, (event,)) for message, event in facts.stored.items()),
    ]
    for message, events in found:
        sends = facts.sends.get(message)
        if sends is None:
            yield Violation("from nowhere", message, events)
        elif events[0].at < sends[0].begin.at:
            yield Violation("from nowhere", message, (events[0], sends[0].begin))


def _lost(facts: Facts, promises: Promises) -> Iterator[Violation]:
    for send in lost(facts, promises, excused=False):
        message = send.begin.message
        runs = [event for run in facts.runs.get(message, ()) for event in run.events]
        yield Violation("lost", message, (*send.events, *runs))


def _refused_and_kept(facts: Facts, _: Promises) -> Iterator[Violation]:
    """A message is there although each send of it failed with an error that says it is not."""
    for message, sends in facts.sends.items():
        runs = facts.runs.get(message, [])
        found = [*(run.begin for run in runs), *_rest(facts, message)]
        if found and all(each.outcome == "fail" for each in sends):
            yield Violation("refused and kept", message, (*sends[0].events, found[0]))


def _rest(facts: Facts, message: str) -> list[Event]:
    return [kept[message] for kept in (facts.dead, facts.stored) if message in kept]


def _overlapping(facts: Facts, promises: Promises) -> Iterator[Violation]:
    """Two runs at once, although no fault made one of the workers lose its lease."""
    silence_s = promises.lease_s * EXCUSED_SHARE
    for message, runs in facts.runs.items():
        for index, first in enumerate(runs):
            for second in runs[index + 1 :]:
                started = second.begin.at
                since = first.begin.at - promises.lease_s
                if (
                    started < first.until
                    and not facts.affected(first.begin.actor, since, started, silence_s)
                    and not _is_stale(facts, second, runs, promises)
                ):
                    yield Violation("two at once", message, (*first.events, *second.events))
                    break


def _repeated(facts: Facts, promises: Promises) -> Iterator[Violation]:
    """A run after a completed one, although no fault hit the worker until it had settled that."""
    for message, runs in facts.runs.items():
        for first, second in pairwise(runs):
            since = first.begin.at - promises.lease_s
            settled = min(second.begin.at, first.until + promises.lease_s)
            if (
                first.outcome == "ok"
                and second.begin.at >= first.until
                and not facts.affected(first.begin.actor, since, settled)
                and not facts.has_forgotten(first.until, second.begin.at)
                and not _is_stale(facts, second, runs, promises)
            ):
                yield Violation("ran again", message, (*first.events, *second.events))


def _is_stale(facts: Facts, run: Operation, runs: Sequence[Operation], promises: Promises) -> bool:
    """Whether a delivery may have reached its worker when its lease was already over.

    What a worker runs again was delivered after its earlier run: it does not take what it has.
    """
    own = [each.until for each in runs if each.begin.actor == run.begin.actor]
    earlier = [until for until in own if until <= run.begin.at]
    since = max(run.begin.at - promises.lease_s, *earlier, 0.0)
    silence_s = promises.lease_s * EXCUSED_SHARE
    return facts.affected(run.begin.actor, since, run.begin.at, silence_s)


def _left_alone(facts: Facts, promises: Promises) -> Iterator[Violation]:
    """What a killed worker had and no other has begun in time, although nothing else was amiss."""
    all_runs = [run for runs in facts.runs.values() for run in runs]
    latest = max((run.begin.at for run in all_runs), default=0.0)
    for kill in facts.faults:
        due = kill.since + promises.lease_s + TAKEN_OVER_S
        if kill.kind not in KILLS or due > latest or facts.disturbed(kill, due):
            continue
        if sum(run.begin.at <= due < run.until for run in all_runs) >= BUSY:
            continue
        for message, runs in facts.runs.items():
            had = [run for run in runs if run.begin.actor == kill.target and run.end is None]
            others = [run for run in runs if run.begin.actor != kill.target]
            is_run = any(
                run.begin.at <= due and (run.outcome == "ok" or run.until > kill.since)
                for run in others
            )
            if had and not is_run and message not in facts.dead:
                events = [run.begin for run in (*had, *others)]
                yield Violation("left alone", message, (kill.event, *events))


def _doubled(facts: Facts, _: Promises) -> Iterator[Violation]:
    for message, runs in facts.runs.items():
        by_actor: dict[str, list[Operation]] = defaultdict(list)
        for run in runs:
            by_actor[_role(run.begin.actor)].append(run)
        for first, second, *_rest in (each for each in by_actor.values() if len(each) > 1):
            yield Violation("delivered twice", message, (first.begin, second.begin))


def _disordered(facts: Facts, _: Promises) -> Iterator[Violation]:
    """The first deliveries to a consumer, of each sender and key, are in the order of sending.

    A send whose outcome is unknown may take place later than those after it.
    """
    sent = {
        message: sends[0].begin
        for message, sends in facts.sends.items()
        if sends[0].outcome == "ok"
    }
    latest: dict[tuple[str, str, str], tuple[Event, Event]] = {}
    seen: set[tuple[str, str]] = set()
    runs = [run.begin for each in facts.runs.values() for run in each]
    for run in sorted(runs, key=lambda each: each.at):
        consumer, send = _role(run.actor), sent.get(run.message)
        if send is None or (consumer, run.message) in seen:
            continue
        seen.add((consumer, run.message))
        stream = consumer, send.actor, send.detail
        if stream in latest and latest[stream][0].operation > send.operation:
            later, ran = latest[stream]
            yield Violation("out of order", run.message, (send, later, ran, run))
        else:
            latest[stream] = send, run


def _over_budget(facts: Facts, promises: Promises) -> Iterator[Violation]:
    for message, runs in facts.runs.items():
        # A failure whose report a fault may have prevented is not counted.
        failed = [
            run
            for run in runs
            if run.outcome == "fail"
            and not facts.affected(run.begin.actor, run.begin.at, run.until + promises.lease_s)
        ]
        if len(failed) > (promises.budget or 0):
            yield Violation("over budget", message, tuple(run.begin for run in failed))


def _buried_early(facts: Facts, promises: Promises) -> Iterator[Violation]:
    if facts.faults:
        return  # Deliveries to workers that are killed before they run the message count too.
    for message, event in facts.dead.items():
        runs = facts.runs.get(message, [])
        if message not in facts.sends:
            continue
        if sum(run.outcome == "fail" for run in runs) < (promises.budget or 0):
            events = [each for run in runs for each in run.events]
            yield Violation("buried early", message, (*events, event))


def _early(facts: Facts, _: Promises) -> Iterator[Violation]:
    """A message that was sent to run later ran before; its send says when, as ``due=``."""
    for message, runs in facts.runs.items():
        for send in facts.sends.get(message, ())[:1]:
            _before, found, due = send.begin.detail.partition("due=")
            ran_at = runs[0].begin.at
            if found and ran_at < float(due) - EARLY_S and not _is_set(facts, send, ran_at):
                yield Violation("early", message, (send.begin, runs[0].begin))


def _is_set(facts: Facts, send: Operation, until: float) -> bool:
    """Whether the clock was set while a message was to wait."""
    return any(
        fault.kind.startswith(CLOCK) and fault.overlap_s(send.begin.at, until) >= 0
        for fault in facts.faults
    )


def _role(actor: str) -> str:
    """The name that a process keeps when it is started again: ``worker-1`` of ``worker-1.2``."""
    return actor.partition(".")[0]
