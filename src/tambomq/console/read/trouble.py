"""When a queue needs a look, and the sentence that says why. No clock, no Redis.

A paused queue is meant to be so: that is no trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tambomq.console.model import Protocol, Trouble
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.rates import Rates
from tambomq.console.words import bytes_text, count_text, duration_text, rate_text

MIN_RUNS: Final = 10
"""With fewer runs a share says nothing."""
FAILING_SHARE: Final = 0.05
"""Amber from here on."""
FAILING_MOST: Final = 0.25
"""Red from here on."""
GROWING_DEPTH: Final = 100
GROWING_OLDEST_S: Final = 60.0
NO_WORKERS_AFTER_S: Final = 10.0
OVERDUE_AFTER_S: Final = 10.0
"""Leaders promote every fraction of a second, and take over within some seconds."""
SILENT_AFTER_S: Final = 45.0
"""A server disconnects silent peers after 30 s by default, and checks every 5."""
DEATHS: Final = 10
DEATHS_MINUTES: Final = 5
SLOW_SHARE: Final = 0.5


class TroubleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules look at."""

    protocol: Protocol
    sample: QueueSample
    rates: Rates
    deaths: int = 0
    """Messages that died in the last `DEATHS_MINUTES`."""


def trouble_of(facts: TroubleFacts) -> Trouble | None:
    """Return the worst trouble, or `None`."""
    found = [trouble for rule in _RULES for trouble in rule(facts)]
    return min(found, key=lambda each: each.severity != "red", default=None)


def _damaged(facts: TroubleFacts) -> Iterator[Trouble]:
    if count := facts.sample.damaged:
        why = f"{count_text(count, 'key')} of it cannot be read: something else is stored there."
        yield Trouble(kind="damaged", severity="red", why=why)


def _failing(facts: TroubleFacts) -> Iterator[Trouble]:
    runs, failed = facts.sample.runs, facts.sample.failed_runs
    # Old failures are no trouble once the last seconds have none.
    if runs < MIN_RUNS or not facts.rates.failed or failed < FAILING_SHARE * runs:
        return
    severity = "red" if failed >= FAILING_MOST * runs else "amber"
    why = f"{failed:,} of the last {runs:,} runs failed, {rate_text(facts.rates.failed)} now."
    yield Trouble(kind="failing", severity=severity, why=why)  # type: ignore[arg-type]


def _no_workers(facts: TroubleFacts) -> Iterator[Trouble]:
    sample = facts.sample
    if sample.paused or sample.workers or sample.workers is None or not sample.visible:
        return
    if facts.protocol == "chasqui" and (sample.oldest_s or 0) >= NO_WORKERS_AFTER_S:
        jobs = count_text(sample.visible, "job waits", "jobs wait")
        waits = f" for {duration_text(sample.oldest_s or 0)}"
        why = f"{jobs}{waits}, and no worker reads the queue."
        yield Trouble(kind="no workers", severity="red", why=why, link="workers")
    elif facts.protocol == "gomq":
        messages = count_text(sample.visible, "message waits", "messages wait")
        why = f"{messages}, and no peer is subscribed."
        yield Trouble(kind="no peers", severity="amber", why=why, link="workers")


def _dying(facts: TroubleFacts) -> Iterator[Trouble]:
    if facts.deaths >= DEATHS:
        died = count_text(facts.deaths, "message")
        why = f"{died} died in the last {DEATHS_MINUTES} minutes."
        yield Trouble(kind="dead letters", severity="red", why=why, link="dead_letters")


def _no_leader(facts: TroubleFacts) -> Iterator[Trouble]:
    overdue_s = facts.sample.overdue_s
    if overdue_s is not None and overdue_s >= OVERDUE_AFTER_S:
        due = f"A delayed job has been due for {duration_text(overdue_s)}"
        why = f"{due}, and no leader promotes it: a worker or tambo serve would."
        yield Trouble(kind="no leader", severity="red", why=why, link="workers")


def _growing(facts: TroubleFacts) -> Iterator[Trouble]:
    sample, grows = facts.sample, facts.rates.grows_per_s
    oldest_s = sample.oldest_s or 0.0
    if sample.paused or grows is None or sample.depth < GROWING_DEPTH:
        return
    if oldest_s >= GROWING_OLDEST_S:
        why = (
            f"It grows {rate_text(grows)}, and its oldest message waits {duration_text(oldest_s)}."
        )
        yield Trouble(kind="growing", severity="amber", why=why)


def _peer_silent(facts: TroubleFacts) -> Iterator[Trouble]:
    if (silent := facts.sample.silent_peer) and silent[1] >= SILENT_AFTER_S:
        why = f"The peer {silent[0]} has not observed for {duration_text(silent[1])}."
        yield Trouble(kind="peer silent", severity="amber", why=why, link="workers")


def _slow_consumer(facts: TroubleFacts) -> Iterator[Trouble]:
    if (slow := facts.sample.slow_consumer) and slow[1] >= SLOW_SHARE * slow[2]:
        address, behind, limit = slow
        behind_text = f"{bytes_text(behind)} behind, of at most {bytes_text(limit)}"
        why = f"The consumer {address} is {behind_text}."
        yield Trouble(kind="slow consumer", severity="amber", why=why, link="workers")


_RULES: Final[tuple[Callable[[TroubleFacts], Iterator[Trouble]], ...]] = (
    *(_damaged, _failing, _no_workers, _no_leader, _dying),
    *(_growing, _peer_silent, _slow_consumer),
)
