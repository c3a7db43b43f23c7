"""The gates that a message passes before it runs, and which are shut. No Redis, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tambomq.console.messages.phrases import ago, count, duration, moment, rate
from tambomq.console.messages.situation import Situation

Shut: TypeAlias = tuple[str, str, bool]
"""The name of a gate, what is there now, and whether it is shut."""


def gates(it: Situation) -> Iterator[Shut]:
    """Yield every gate of a message that waits, in the order in which it passes them."""
    yield _due(it)
    if it.promoter is not None and it.state == "delayed":
        yield _promoter(it)
    if it.paused is not None:
        yield "Pause", "The queue is paused" if it.paused else "The queue is not paused", it.paused
    if it.protocol == "gomq":
        yield from _gomq_gates(it)
    elif it.workers is not None:
        yield _workers(it)
    if it.limit_started is not None or it.limited_until_ms is not None:
        yield limiter_gate(it)
    yield _line(it)


def _due(it: Situation) -> Shut:
    if it.due_ms is None:
        return "Due time", "It has no delay", False
    if it.protocol == "rsmq" and it.due_ms <= it.now_ms:
        return "Due time", f"Visible since {moment(it.due_ms)}", False
    if it.due_ms > it.now_ms:
        when = f"Not before {moment(it.due_ms)}, {ago(it.due_ms, it.now_ms)}"
        return "Due time", when, True
    return "Due time", f"Due since {moment(it.due_ms)}, {ago(it.due_ms, it.now_ms)}", False


def _promoter(it: Situation) -> Shut:
    if it.promoter:
        return "Promoter", f"{it.promoter} puts due jobs in line", False
    return "Promoter", "No process puts due jobs in line", True


def _workers(it: Situation) -> Shut:
    if not it.workers:
        silent = f"; {count(it.silent_workers, 'is', 'are')} silent" if it.silent_workers else ""
        return "Workers", f"No worker is alive{silent}", True
    have = f", with {count(it.held, 'job')} among them" if it.held else ", all of them free"
    return "Workers", f"{count(it.workers, 'worker is', 'workers are')} alive{have}", False


def limiter_gate(it: Situation) -> Shut:
    """Return whether the rate limiter lets it start."""
    started = count(it.limit_started or 0, "start")
    ends = f"{started} in this window"
    if it.limit_ends_ms is not None and it.limit_ends_ms > it.now_ms:
        ends += f", which ends {ago(it.limit_ends_ms, it.now_ms)}"
    is_shut = it.limited_until_ms is not None and it.limited_until_ms > it.now_ms
    return "Limiter", f"{ends}; workers wait for it" if is_shut else ends, is_shut


def _line(it: Situation) -> Shut:
    line = it.line
    if it.state == "delayed":
        waiting = line.waiting or 0
        text = (
            f"{count(waiting, 'message waits', 'messages wait')} now" if waiting else "It is empty"
        )
        return "Line", text + takes(waiting, line.per_s), bool(waiting)
    if line.ahead is None:
        return "Line", "How many are before it is not known", False
    if not line.ahead:
        return "Line", "It is the next", False
    more = "" if line.is_exact else "more than "
    return "Line", f"{more}{line.ahead:,} before it{takes(line.ahead, line.per_s)}", True


def takes(ahead: int, per_s: float | None) -> str:
    """Return how long *ahead* messages take at a rate, as the end of a sentence."""
    if not ahead or per_s is None:
        return ""
    if per_s <= 0:
        return ", and none has started of late"
    return f", about {duration(ahead / per_s)} at {rate(per_s)}"


def _gomq_gates(it: Situation) -> Iterator[Shut]:
    if it.consumers is not None:
        text = f"{count(it.consumers, 'consumer is', 'consumers are')} subscribed"
        yield "Consumers", text if it.consumers else "No consumer is subscribed", not it.consumers
        text = f"{count(it.workers or 0, 'peer is', 'peers are')} connected"
        yield "Peers", text if it.workers else "No peer is connected", not it.workers
    if it.backlog_held_until_ms is not None:
        is_held = it.backlog_held_until_ms > it.now_ms
        when = ago(it.backlog_held_until_ms, it.now_ms)
        yield "Backlog", f"Shared out {when}, so that other peers can subscribe", is_held
    if it.full_peer:
        yield "Full peer", f"{it.full_peer} has as many messages as it may", True
    if it.unsettled:
        yield "Departed peers", "Their messages come first and are being put back", True
    if it.holder is not None:
        silent_s = it.holder.silent_s
        is_silent = silent_s is not None and silent_s > (it.holder.takeover_s or 0)
        seen = "at an unknown time" if silent_s is None else f"{duration(silent_s)} ago"
        yield "Peer", f"{it.holder.name} observed {seen}", is_silent
