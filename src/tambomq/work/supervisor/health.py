"""Whether the processes consume. No I/O: a process is judged by its last report.

A process is healthy if each of its workers has read from its queue of late, or has a reason not to
read. That is proof: a process whose connection hangs, or whose event loop is blocked, has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import msgspec

from tambomq.work.messages import ProcessReport, QueueState
from tambomq.work.supervisor.slot import ProcessSlot

SILENT_S: Final = 10.0
"""Without a report for longer, a process is taken for stuck: it reports twice a second."""


class ProcessStatus(msgspec.Struct, frozen=True):
    """The health of one process."""

    ok: bool
    pid: int | None
    why: str
    """What is wrong; empty if nothing is."""
    queues: list[QueueState] = []


def look(slots: Iterable[ProcessSlot]) -> dict[int, ProcessStatus]:
    """Return the health of each process, by its number."""
    now = time.monotonic()
    return {slot.number: _status(slot, now) for slot in slots}


def _status(slot: ProcessSlot, now: float) -> ProcessStatus:
    if (child := slot.child) is None:
        return ProcessStatus(ok=False, pid=None, why=f"it {slot.state}")
    if (report := child.report) is None:
        return ProcessStatus(ok=False, pid=child.pid, why="it has not started to read yet")
    why = fault(report, now - child.reported_at)
    return ProcessStatus(ok=not why, pid=child.pid, why=why, queues=report.queues)


def hanging(slots: Iterable[ProcessSlot]) -> dict[int, str]:
    """Return why processes hang, by their number: a new start would help, wherever Redis is."""
    now = time.monotonic()
    children = [slot.child for slot in slots if slot.child is not None]
    found = {
        each.number: _hang(each.report, now - each.reported_at)
        for each in children
        if each.report is not None
    }
    return {number: why for number, why in found.items() if why}


def fault(report: ProcessReport, age_s: float) -> str:
    """Return what is wrong with a process that sent *report* *age_s* ago; empty if nothing."""
    if why := _hang(report, age_s):
        return why
    if report.is_stopping:
        # It reads nothing on purpose.
        return ""
    return "; ".join(_queue_fault(each) for each in report.queues if not each.is_consuming)


def _hang(report: ProcessReport, age_s: float) -> str:
    if age_s > SILENT_S:
        return f"it has reported nothing for {age_s:.0f} s"
    if report.blocked_s > SILENT_S:
        job = f" ({report.oldest} runs longest)" if report.oldest else ""
        return f"its event loop has been blocked for {report.blocked_s:.0f} s{job}"
    return ""


def _queue_fault(state: QueueState) -> str:
    if state.fetched_s_ago is None:
        return f"it has not read from {state.queue!r} yet"
    return f"it has not read from {state.queue!r} for {state.fetched_s_ago:.0f} s"
