"""Heartbeats: renew the leases of a worker's in-flight messages.

A heartbeat never runs on the worker's event loop: a handler that blocks the loop must not lose its
job. In a *thread* it is independent of the loop; in a *process* of its own also of the GIL.

A protocol defines the renewal in its `Lease`; the rest is the same for all.
"""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO, Any, Protocol

from tambomq.clock import backoff_delays
from tambomq.errors import SettingsError
from tambomq.runtime.renewal import Lease, OnLost, Renewal, drop

log = logging.getLogger(__name__)


class Heartbeat(Protocol):
    """Renews leases until they are released."""

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""

    def let_go(self, ids: Iterable[str]) -> None:
        """Stop renewing *ids*."""

    def close(self) -> None:
        """Stop renewing."""


class NoHeartbeat:
    """Renews nothing: each lease lasts for its initial time only."""

    def hold(self, held: dict[str, str]) -> None:
        """Do nothing."""

    def let_go(self, ids: Iterable[str]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ThreadHeartbeat:
    """Renews from a thread, on a connection of its own.

    The reply timeout is half the renewal interval; then the renewal is retried at once on a new
    connection. So a silent connection delays a renewal by less than one interval.
    """

    def __init__(
        self, lease: Lease, on_lost: OnLost | None = None, held: dict[str, str] | None = None
    ) -> None:
        """Start; *held*, receipts by id, is renewed at once."""
        self.held: dict[str, str] = held or {}
        """Receipts by id. Hot paths may set and pop them here directly, from any thread."""
        self._renewal = Renewal(lease, self.held, self._report_lost)
        self._every_s, self._on_lost = lease.every_s, on_lost
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tambomq-heartbeat", daemon=True)
        self._thread.start()

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""
        self.held.update(held)

    def let_go(self, ids: Iterable[str]) -> None:
        """Stop renewing *ids*."""
        for id in ids:
            self.held.pop(id, None)

    def close(self) -> None:
        """Stop renewing."""
        self._closed.set()
        self._thread.join()
        self._renewal.close()

    def _run(self) -> None:
        due = time.monotonic() + (0 if self.held else self._every_s)
        while not self._closed.wait(max(0.0, due - time.monotonic())):
            # Counted from the start of this renewal: a retry must not delay the next one.
            due = time.monotonic() + self._every_s
            self._renewal.renew()

    def _report_lost(self, lost: dict[str, str]) -> None:
        if self._on_lost is not None:
            self._on_lost(list(lost))


class ProcessHeartbeat:
    """Renews from a child process, which ends when this one does, however that happens.

    A watcher thread waits for the child to end. If it dies (kill -9, out of memory), the thread
    renews and starts another.
    """

    def __init__(self, lease: Lease, on_lost: OnLost | None = None) -> None:
        """Start the process; nothing is held yet."""
        if lease.endpoint.credentials is not None:
            raise SettingsError(
                'heartbeat="process" cannot ask a credential provider: '
                "put user and password in the URL"
            )
        self._lease, self._on_lost = lease, on_lost
        self._held: dict[str, str] = {}
        # Guards `_held` and the messages to the process: both must change together.
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._start()
        self._watcher = threading.Thread(target=self._watch, name="tambomq-heartbeat", daemon=True)
        self._watcher.start()

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""
        with self._lock:
            self._held.update(held)
            self._send(held)

    def let_go(self, ids: Iterable[str]) -> None:
        """Stop renewing *ids*."""
        released = list(ids)
        with self._lock:
            for id in released:
                self._held.pop(id, None)
            self._send(released)

    def close(self) -> None:
        """Stop renewing."""
        with self._lock:
            self._closed.set()
            self._close_pipe()
        self._watcher.join()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tambomq.runtime.heartbeat_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if self._on_lost is None else subprocess.PIPE,
            # Ctrl-C is for the worker, which finishes what it has begun.
            start_new_session=True,
        )
        self._reader = self._start_reader(self._process.stdout, self._on_lost)
        # If it is dead already, the watcher restarts it.
        with suppress(OSError):
            self._write(pickle.dumps((self._lease, self._held)))

    def _watch(self) -> None:
        """Replace the process whenever it ends, until this is closed."""
        wait = backoff_delays(longest_s=max(0.02, self._lease.every_s / 2))
        renewal = Renewal(self._lease, self._held, self._lost)
        began = time.monotonic()
        while self._ended() and not self._closed.is_set():
            self._warn("the heartbeat process of queue %r ended; starting another")
            renewal.renew()
            if time.monotonic() - began > self._lease.every_s:
                wait = backoff_delays(longest_s=max(0.02, self._lease.every_s / 2))
            elif self._closed.wait(next(wait)):
                # It died soon after its start: back off.
                break
            began = time.monotonic()
            self._replace()
        renewal.close()

    def _ended(self) -> bool:
        """Wait for the end of the process and of its output."""
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        return True

    def _replace(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._close_pipe()
            try:
                self._start()
            except OSError as error:
                # No memory, or too many processes. The old one has ended, so it is tried again.
                self._warn("cannot start the heartbeat process of queue %r: %s", error)

    def _warn(self, text: str, *args: object) -> None:
        """Log; drop what a log handler of the user raises, so that the leases are renewed."""
        queue = self._lease.queue
        with suppress(Exception):
            log.warning(text, queue, *args, extra={"queue": queue})

    def _start_reader(
        self, pipe: IO[bytes] | None, on_lost: OnLost | None
    ) -> threading.Thread | None:
        """Start the thread that passes lost leases to *on_lost*."""
        if pipe is None or on_lost is None:
            return None

        def run() -> None:
            with pipe:
                for report in messages(pipe):
                    if lost := drop(self._held, report):
                        on_lost(list(lost))

        reader = threading.Thread(target=run, name="tambomq-heartbeat", daemon=True)
        reader.start()
        return reader

    def _lost(self, lost: dict[str, str]) -> None:
        if self._on_lost is not None:
            self._on_lost(list(lost))

    def _send(self, what: dict[str, str] | list[str]) -> None:
        # A dead process is replaced soon, and its successor gets all of `_held`.
        with suppress(OSError, ValueError):
            self._write(message(what))

    def _write(self, data: bytes) -> None:
        self._inbox.write(data)
        self._inbox.flush()

    def _close_pipe(self) -> None:
        with suppress(OSError):
            self._inbox.close()

    @property
    def _inbox(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101  (started with a pipe)
        return self._process.stdin


def message(what: dict[str, str] | list[str]) -> bytes:
    """Return *what* as a line for a pipe; JSON, since an id may contain anything."""
    return json.dumps(what).encode("ascii") + b"\n"


def messages(pipe: IO[bytes]) -> Iterator[Any]:
    """Yield the messages from *pipe*; an incomplete last line is dropped."""
    for line in pipe:
        if line.endswith(b"\n"):
            yield json.loads(line)


def heartbeat(how: str | None, lease: Lease, on_lost: OnLost | None = None) -> Heartbeat:
    """Return the heartbeat for *lease*: ``"thread"``, ``"process"``, or `None` for none."""
    if check_how(how) is None:
        return NoHeartbeat()
    return (ThreadHeartbeat if how == "thread" else ProcessHeartbeat)(lease, on_lost)


def check_how(how: str | None) -> str | None:
    """Return *how* if there is such a heartbeat; raise `SettingsError` if not."""
    if how not in (None, "thread", "process"):
        raise SettingsError(f'heartbeat is "thread", "process" or None, not {how!r}')
    return how
