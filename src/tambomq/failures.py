"""Errors of handlers as text for logs and dead letters, bounded in length."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from tambomq.errors import JobProcessDied, JobTimedOut, Reject

if TYPE_CHECKING:
    import logging

MAX_TRACEBACK: Final = 8_000
"""Characters kept of a traceback: its beginning and its end."""
MAX_FRAMES: Final = 30
"""Frames shown of each exception of a chain: those closest to the raise."""
REPEATS_EVERY_S: Final = 10.0
"""Repeats of a failure are counted for this time, then logged in one line."""
MAX_KINDS: Final = 500
"""Kinds of failure remembered as logged; a new one then replaces the oldest."""

# Frames between the worker's loop and the handler.
_NOT_THE_HANDLER: Final = (
    str(Path(__file__).parent) + "/",
    str(Path(types.__file__).parent / "concurrent" / "futures") + "/",
)
_DECISIONS: Final = (Reject, JobTimedOut, JobProcessDied)
# A script of RSMQ's journal contains it too.
_SEPARATOR: Final = "\n--- traceback ---\n"
_UNNAMED: Final = ("builtins", "__main__")


def type_of(error: BaseException) -> str:
    """Return the name of the error's type, with its module unless that says nothing."""
    kind = type(error)
    module = "" if kind.__module__ in _UNNAMED else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return the text of *error*, or its type if ``str`` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (somebody else's `__str__`)
        return type(error).__name__


def headline(kind: str | None, message: str | None) -> str:
    """Return type and message in one: ``KeyError: 'to'``."""
    return ": ".join(filter(None, (kind, message)))


def with_traceback(reason: str, trace: str) -> str:
    """Return both as one text, for where there is one field for them; see `without_traceback`."""
    return f"{reason}{_SEPARATOR}{trace}" if trace else reason


def without_traceback(text: str) -> tuple[str, str | None]:
    """Return the reason, and the traceback if *text* has one."""
    reason, _, trace = text.partition(_SEPARATOR)
    return reason, trace or None


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the handler on, with its causes; at most `MAX_TRACEBACK` long.

    Empty for what a worker has decided by itself: its text says it all.
    """
    import traceback  # noqa: PLC0415  (slow to import, and most processes never need it)

    frames = from_handler(error)
    if not _has_more_than_text(error, frames):
        return ""
    try:
        described = traceback.TracebackException(
            type(error), error, frames, limit=-MAX_FRAMES, compact=True
        )
        text = "".join(described.format()).rstrip("\n")
    except Exception:  # noqa: BLE001  (somebody else's exception, with properties of its own)
        return ""
    if len(text) <= MAX_TRACEBACK:
        return text
    half = MAX_TRACEBACK // 2 - 10
    return f"{text[:half]}\n  […]\n{text[-half:]}"


def from_handler(error: BaseException) -> TracebackType | None:
    """Return the traceback of *error* without our own frames at its head.

    All of it if there are no others, unless they say nothing: the worker has decided it, or it was
    raised in another process, whose traceback is in its notes.
    """
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_NOT_THE_HANDLER):
        frame = frame.tb_next
    if frame is None and not (isinstance(error, _DECISIONS) or _notes(error)):
        return error.__traceback__
    return frame


def of_thread(thread: int, until: types.CodeType) -> TracebackType | None:
    """Return where the thread with the identifier *thread* is now, below its call of *until*."""
    frame, found = sys._current_frames().get(thread), None  # noqa: SLF001  (documented as public)
    while frame is not None and frame.f_code is not until:
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    # It has never called it, or has returned meanwhile.
    return None if frame is None else found


def _notes(error: BaseException) -> Sequence[str]:
    return getattr(error, "__notes__", ())


def _has_more_than_text(error: BaseException, frames: TracebackType | None) -> bool:
    return bool(frames or error.__cause__ or _notes(error))


def from_elsewhere(error: BaseException) -> BaseException:
    """Return *error*, of a handler in a thread or process, in a form that a loop can raise.

    A future cannot carry StopIteration, and the other two would end the loop. None is a Ctrl-C:
    that reaches the main thread alone.
    """
    if not isinstance(error, StopIteration | KeyboardInterrupt | GeneratorExit):
        return error
    wrapped = RuntimeError(f"the handler raised {headline(type_of(error), text_of(error))}")
    wrapped.__cause__ = error
    return wrapped


class Timer(Protocol):
    """The part of `asyncio.TimerHandle` that `FailureLog` uses."""

    def cancel(self) -> None:
        """Cancel the call."""


class FailureLog:
    """Logs failed runs of one queue's handler as warnings, without a flood.

    The first failure of a kind has its traceback; further ones are counted, and one line every
    `REPEATS_EVERY_S` says how many there were. A kind is a type and the line that raised it.
    """

    def __init__(
        self,
        log: logging.Logger | logging.LoggerAdapter[logging.Logger],
        what: str,
        queue: str,
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        """*what* is a word for what failed: job, message."""
        self._log, self._what, self._queue, self._call_later = log, what, queue, call_later
        # A log record has an attribute `message` already.
        self._field = "message_id" if what == "message" else what
        self._repeats: dict[tuple[Any, ...], int] = {}
        self._last: dict[tuple[Any, ...], tuple[str, str]] = {}
        self._timer: Timer | None = None

    def failed(self, id: str, run: int, error: BaseException) -> None:
        """Log or count that attempt *run* of *id* raised *error*."""
        kind, description = _kind(error), headline(type_of(error), text_of(error))
        if kind in self._repeats:
            self._repeats[kind] += 1
            self._last[kind] = (id, description)
            if self._timer is None:
                self._timer = self._call_later(REPEATS_EVERY_S, self.flush)
            return
        if len(self._repeats) >= MAX_KINDS:
            self.flush()
            del self._repeats[next(iter(self._repeats))]
        self._repeats[kind] = 0
        frames = from_handler(error)
        shown = (type(error), error, frames) if _has_more_than_text(error, frames) else None
        self._log.warning(
            "%s %r of queue %r failed in run %d: %s",
            *(self._what, id, self._queue, run, description),
            exc_info=shown,
            extra={"queue": self._queue, self._field: id, "attempt": run},
        )

    def flush(self) -> None:
        """Log how often each failure was repeated since it was logged."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        for kind, (id, description) in self._last.items():
            count = self._repeats[kind]
            self._repeats[kind] = 0
            self._log.warning(
                "queue %r: failed %d more %s, the last of them %s %r: %s",
                *(self._queue, count, "time" if count == 1 else "times"),
                *(self._what, id, description),
                extra={"queue": self._queue, self._field: id, "count": count},
            )
        self._last.clear()


def _kind(error: BaseException) -> tuple[Any, ...]:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return (type(error),)
    return (type(error), last.tb_frame.f_code.co_filename, last.tb_lineno)
