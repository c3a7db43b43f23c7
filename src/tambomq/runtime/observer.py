"""Observers of a worker's runs: for metrics, log lines and tracing. The same for all protocols.

A worker without an observer makes no record. An observer is called on the worker's event loop,
between two jobs: it must not block. What it raises is logged and does not reach the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter_ns
from typing import Literal, Protocol, TypeAlias

import msgspec

log = logging.getLogger(__name__)

RunOutcome: TypeAlias = Literal["completed", "retried", "dead", "cancelled", "returned", "lost"]
"""What became of a run: ``dead`` is a dead letter, ``returned`` means that the worker ended first
and gave the job back, ``lost`` that Redis did not take the outcome: another worker had claimed the
job, or it was deleted, or the worker ended while the server was unreachable."""

RunEnd: TypeAlias = Callable[[RunOutcome, str], None]
"""Takes the outcome of a run and what its handler raised, or ''."""


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """One run of a handler, after it ended."""

    queue: str
    id: str
    name: str
    """The dispatch name; empty if the protocol or the job has none."""
    attempt: int
    """The number of this run of the job, from 1."""
    outcome: RunOutcome
    waited_ms: int
    """From when the job could be read to when this run began, by two clocks; never negative.

    RSMQ: from when the message was sent, in its first run; 0 in later ones.
    """
    took_us: int
    error: str
    """Type and text of what the handler raised: ``KeyError: 'to'``; empty if nothing."""


class RunObserver(Protocol):
    """What a worker tells about its runs: for each `run_started` the other two, once each.

    ChasquiMQ: `run_ended` is called when Redis has taken the outcome, so that it says what Redis
    has decided. RSMQ: when the handler has ended, and never with ``lost``.
    """

    def run_started(self, queue: str, id: str, name: str, attempt: int) -> None:
        """Note that a handler is about to be called."""

    def handler_ended(self, queue: str, id: str) -> None:
        """Note that it has returned or raised; what becomes of the job is not decided yet."""

    def run_ended(self, record: RunRecord) -> None:
        """Note how a run ended."""


class GuardedObserver:
    """Calls an observer and logs what it raises: a fault in metrics must not stop the work."""

    def __init__(self, observer: RunObserver) -> None:
        self._observer = observer

    def run_started(self, queue: str, id: str, name: str, attempt: int) -> None:
        """Note that a handler is about to be called."""
        try:
            self._observer.run_started(queue, id, name, attempt)
        except Exception:
            log.exception("the observer of queue %r failed", queue, extra={"queue": queue})

    def handler_ended(self, queue: str, id: str) -> None:
        """Note that it has returned or raised."""
        try:
            self._observer.handler_ended(queue, id)
        except Exception:
            log.exception("the observer of queue %r failed", queue, extra={"queue": queue})

    def run_ended(self, record: RunRecord) -> None:
        """Note how a run ended."""
        try:
            self._observer.run_ended(record)
        except Exception:
            queue = record.queue
            log.exception("the observer of queue %r failed", queue, extra={"queue": queue})


def guarded(observer: RunObserver | None) -> GuardedObserver | None:
    """Return *observer* so that it cannot raise; `None` if there is none."""
    return None if observer is None else GuardedObserver(observer)


def begin_run(
    observer: GuardedObserver | None, queue: str, id: str, attempt: int, waited_ms: int
) -> RunEnd:
    """Report a run that begins; return a function to call once with its outcome and its error."""
    if observer is None:
        return _ignore
    observer.run_started(queue, id, "", attempt)
    started_ns = perf_counter_ns()

    def end(outcome: RunOutcome, error: str) -> None:
        took_us = (perf_counter_ns() - started_ns) // 1000
        record = RunRecord(queue, id, "", attempt, outcome, waited_ms, took_us, error)
        observer.handler_ended(queue, id)
        observer.run_ended(record)

    return end


def _ignore(outcome: RunOutcome, error: str) -> None:
    """Report nothing: there is no observer."""
