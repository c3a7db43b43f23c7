"""What failovers under load have shown: lost sends, doubles, and times without service."""

from __future__ import annotations

import math
import os
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from tests.chaos.report import markdown


@dataclass(frozen=True, slots=True)
class Failover:
    """One failover; times are those of `time.monotonic`."""

    kind: str
    began: float
    promoted: float
    """When another server took writes."""
    whole: float
    """When the old primary was a replica with all data."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What one failover cost: how many confirmed sends, and when they were confirmed."""

    count: int = 0
    first_s: float = 0.0
    """Seconds after its begin; negative before it, by the lag of the replica."""
    last_s: float = 0.0

    def __str__(self) -> str:
        """Return it for the end of a line; nothing if nothing was lost."""
        if not self.count:
            return ""
        return (
            f", lost {self.count:,}, confirmed from {self.first_s:+.2f} s to {self.last_s:+.2f} s"
        )


@dataclass(slots=True)
class Sent:
    """What the sender of one protocol did, and what is stored of it."""

    protocol: str
    begun: int = 0
    seconds: float = 0.0
    confirmed: dict[str, float] = field(default_factory=dict)
    """By text when it was confirmed."""
    errors: dict[str, int] = field(default_factory=dict)
    stored: Counter[str] = field(default_factory=Counter)

    @property
    def lost(self) -> list[str]:
        """What was confirmed and is not stored."""
        return [text for text in self.confirmed if text not in self.stored]

    @property
    def doubles(self) -> int:
        """How many messages are stored more often than they were sent."""
        return sum(count - 1 for count in self.stored.values())


@dataclass(slots=True)
class Result:
    """All of a run."""

    durable: str
    replicas: int
    rate: float
    seed: int
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    failovers: list[Failover] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of the machine, at the end."""

    @property
    def lost(self) -> int:
        """How many confirmed sends are not stored."""
        return sum(len(each.lost) for each in self.sent)

    @property
    def broken(self) -> bool:
        """Whether a confirmed send was lost that must not be.

        A replica that lags may be promoted where fewer than all of them have confirmed.
        """
        return self.lost > 0 and self.durable == f"replicas:{self.replicas}"

    @property
    def gaps(self) -> list[float]:
        """For each failover the longest time without a confirmed send, until the next one."""
        times = sorted(time for each in self.sent for time in each.confirmed.values())
        ends = [each.began for each in self.failovers[1:]] + [math.inf]
        return [
            max((b - a for a, b in pairwise(times) if b > each.began and a < end), default=math.inf)
            for each, end in zip(self.failovers, ends, strict=True)
        ]

    @property
    def followed(self) -> list[float]:
        """For each failover the time from the promotion to the next confirmed send."""
        times = sorted(time for each in self.sent for time in each.confirmed.values())
        places = (bisect(times, each.promoted) for each in self.failovers)
        return [
            times[place] - each.promoted if place < len(times) else math.inf
            for each, place in zip(self.failovers, places, strict=True)
        ]

    @property
    def losses(self) -> list[Loss]:
        """What each failover cost, by when it was confirmed."""
        times = [each.confirmed[text] for each in self.sent for text in each.lost]
        ends = [-math.inf, *(each.whole for each in self.failovers[:-1]), math.inf]
        lost_times = [[time for time in times if a < time <= b] for a, b in pairwise(ends)]
        return [
            Loss(len(lost), min(lost) - each.began, max(lost) - each.began) if lost else Loss()
            for each, lost in zip(self.failovers, lost_times, strict=True)
        ]

    @property
    def lines(self) -> Iterator[str]:
        """A table of the protocols, and a list of the failovers."""
        header = ("protocol", "begun", "per s", "confirmed", "lost", "doubles", "errors")
        yield from markdown(header, (_row(each) for each in self.sent))
        yield ""
        for number, (each, gap, loss) in enumerate(self._by_failover, 1):
            yield (
                f"{number:3} {each.kind:8} promoted after {each.promoted - each.began:.2f} s,"
                f" no confirmed send for {gap:.2f} s{loss}"
            )
        yield ""
        yield f"without service: {_listed(self.gaps)}"
        yield f"from the promotion to a confirmed send: {_listed(self.followed)}"
        yield f"durable {self.durable}, {self.replicas} replicas: lost {self.lost:,}" + (
            ", which must not be" if self.broken else ""
        )
        loads = ", ".join(f"{each:.1f}" for each in self.load)
        yield (
            f"seed {self.seed}, {self.rate:g} sends/s wanted, {self.began:%Y-%m-%d %H:%M} UTC,"
            f" load {loads} on {os.cpu_count()} cores"
        )

    @property
    def _by_failover(self) -> list[tuple[Failover, float, Loss]]:
        return list(zip(self.failovers, self.gaps, self.losses, strict=True))

    @property
    def json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        names = ("durable", "replicas", "rate", "seed", "lost", "broken", "load")
        return {name: getattr(self, name) for name in names} | {
            "began": self.began.isoformat(timespec="seconds"),
            "without_service_s": _summary(self.gaps),
            "followed_s": _summary(self.followed),
            "failovers": [
                {
                    "kind": each.kind,
                    "promoted_s": each.promoted - each.began,
                    "whole_s": each.whole - each.began,
                    "without_service_s": gap,
                    "lost": asdict(loss),
                }
                for each, gap, loss in self._by_failover
            ],
            "protocols": [
                {
                    "protocol": each.protocol,
                    "begun": each.begun,
                    "seconds": each.seconds,
                    "confirmed": len(each.confirmed),
                    "lost": len(each.lost),
                    "doubles": each.doubles,
                    "errors": each.errors,
                }
                for each in self.sent
            ],
        }


def _row(sent: Sent) -> tuple[str, ...]:
    errors = ", ".join(f"{name} {count:,}" for name, count in sent.errors.items())
    rate = sent.begun / sent.seconds if sent.seconds else 0.0
    numbers = (sent.begun, round(rate), len(sent.confirmed), len(sent.lost), sent.doubles)
    return (sent.protocol, *(f"{each:,}" for each in numbers), errors)


def _listed(seconds: Sequence[float]) -> str:
    return ", ".join(f"{name} {value:.2f} s" for name, value in _summary(seconds).items())


def _summary(gaps: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th percentile (of the nearest rank) and the maximum."""
    ranked = sorted(gaps)
    return {
        name: ranked[math.ceil(share * len(ranked)) - 1]
        for name, share in {"p50": 0.5, "p95": 0.95, "max": 1.0}.items()
    }
