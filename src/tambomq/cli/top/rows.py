"""The rows of ``tambo top``: queues in the order that is asked for, numbers for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tambomq.console.model import Overview, QueueRow, Trouble
from tambomq.text import spelled_out

SORTS: Final[dict[str, Callable[[QueueRow], Any]]] = {
    "depth": lambda row: row.depth,
    "in": lambda row: row.in_per_s,
    "out": lambda row: row.out_per_s,
    "dead": lambda row: row.dead or 0,
    "oldest": lambda row: row.oldest_s or 0.0,
    "name": lambda row: row.name,
}
"""What queues can be sorted by. The largest number comes first, names in their own order."""

NARROW_COLUMNS: Final = ("queue", "depth", "running", "dead", "in/s", "out/s")
COLUMNS: Final = ("queue", "depth", "running", "delayed", "dead", "oldest", "in/s", "out/s")
WIDE_COLUMNS: Final = (*COLUMNS, "visible", "drained in", "size", "state")
_TENS: Final = 10
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_EXACT: Final = 1_000_000


def in_order(rows: Sequence[QueueRow], sort: str, *, backwards: bool = False) -> list[QueueRow]:
    """Return *rows* sorted by one of `SORTS`; equal ones by protocol and name."""
    by_name = sorted(rows, key=lambda row: (row.protocol, row.name))
    return sorted(by_name, key=SORTS[sort], reverse=(sort != "name") != backwards)


def cells(row: QueueRow, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the cells of one queue under *columns*."""
    texts = {
        "queue": spelled_out(row.queue),
        "depth": _count(row.depth),
        "running": _count(row.in_flight),
        "delayed": _count(row.delayed),
        "dead": _count(row.dead),
        "oldest": _age(row.oldest_s),
        "in/s": _rate(row.in_per_s),
        "out/s": _rate(row.out_per_s),
        "visible": _count(row.visible),
        "drained in": "grows" if row.grows_per_s else _age(row.drain_s),
        "size": _size(row.size_bytes),
        "state": state(row),
    }
    return [texts[column] for column in columns]


def state(row: QueueRow) -> str:
    """Return what is special about the queue, in a word or two."""
    words = ["paused"] if row.paused else []
    return ", ".join([*words, row.trouble.kind] if row.trouble else words)


def sign(row: QueueRow) -> str:
    """Return a sign for the margin, which needs no colour: trouble, worth a look, paused."""
    if row.trouble is not None:
        return "!" if row.trouble.severity == "red" else "?"
    return "=" if row.paused else " "


def totals(overview: Overview) -> str:
    """Return the figures of all queues."""
    found, sums = len(overview.queues), overview.totals
    left_out = f" (and {overview.cut_off:,} not shown)" if overview.cut_off else ""
    words = [
        f"{found:,} queue{'' if found == 1 else 's'}{left_out}",
        f"in {_rate(sums.in_per_s)}/s",
        f"out {_rate(sums.out_per_s)}/s",
        f"failed {_rate(sums.failed_per_s)}/s",
        f"backlog {_count(sums.backlog)}",
        f"dead {_count(sums.dead)}",
        f"workers {_count(sums.workers)}",
    ]
    return "  ".join(words)


def troubles(overview: Overview, limit: int) -> list[str]:
    """Return sentences about the worst troubles."""
    found: list[tuple[str, Trouble]] = [
        (row.queue, row.trouble) for row in overview.queues if row.trouble is not None
    ]
    found.sort(key=lambda each: each[1].severity != "red")
    return [spelled_out(f"{queue}: {trouble.why}") for queue, trouble in found[:limit]]


def server(overview: Overview) -> str:
    """Return the server, as far as it is known."""
    redis = overview.redis
    limit = f" of {_size(redis.max_memory_bytes)}" if redis.max_memory_bytes else ""
    memory = f"{_size(redis.memory_bytes)}{limit}" if redis.memory_bytes else ""
    took = "" if redis.latency_ms is None else f"{redis.latency_ms:.1f} ms"
    return "  ".join(filter(None, (spelled_out(redis.url), redis.version, memory, took)))


def lost(overview: Overview, now_ms: int) -> str:
    """Return that Redis is lost, and since when the numbers stand; empty if it is not."""
    redis = overview.redis
    if redis.ok:
        return ""
    since_s = max(0, now_ms - (redis.lost_since_ms or now_ms)) / 1000
    again_s = max(0, (redis.next_try_ms or now_ms) - now_ms) / 1000
    return (
        f"Redis is lost for {_age(since_s)}: these numbers are the last. "
        f"Next try in {_age(again_s)}. {spelled_out(redis.why)}"
    )


def _count(number: int | None) -> str:
    if number is None:
        return "-"
    if number < _EXACT:
        return f"{number:,}" if number >= _TENS**4 else str(number)
    return f"{number / _EXACT:.1f}M"


def _rate(per_s: float) -> str:
    if not per_s:
        return "0"
    return f"{per_s:.1f}" if per_s < _TENS else f"{per_s:,.0f}"


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < _TENS:
        return f"{seconds:.1f}s"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f}s"
    for unit, size_s in (("m", _MINUTE_S), ("h", _HOUR_S)):
        if seconds < 2 * size_s * (_MINUTE_S if unit == "m" else 24):
            return f"{seconds / size_s:.0f}{unit}"
    return f"{seconds / _DAY_S:.0f}d"


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    value = float(size)
    for unit in ("B", "K", "M"):
        if value < 1024:  # noqa: PLR2004  (what these units are made of)
            return f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}G"
