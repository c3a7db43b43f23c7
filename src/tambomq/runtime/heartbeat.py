"""What a worker holds, and the renewal that keeps it from others.

The renewal never runs on the worker's event loop: a handler that blocks the
loop must not lose its job. In a *thread* it goes on whatever the loop does; in a
*process* of its own also while a handler holds the interpreter's lock.

A protocol says how to renew with its `Lease`; the rest is the same for all.
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

from tambomq.clock import pauses
from tambomq.errors import SettingsError
from tambomq.store.renewal import Lease, OnLost, Renewal, drop

log = logging.getLogger(__name__)


class Heartbeat(Protocol):
    """Keeps from others what is held, until told to let go."""

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""

    def let_go(self, ids: Iterable[str]) -> None:
        """Renew *ids* no more."""

    def close(self) -> None:
        """Renew nothing any more."""


class NoHeartbeat:
    """Keeps nothing: what is held is ours for one lease and no longer."""

    def hold(self, held: dict[str, str]) -> None:
        """Do nothing."""

    def let_go(self, ids: Iterable[str]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ThreadHeartbeat:
    """Renews from a thread, on a connection of its own.

    A reply is waited for half the time between two renewals; then the renewal is repeated at once
    on a new connection. So one that has gone silent delays a renewal by less than one interval.
    """

    def __init__(
        self, lease: Lease, on_lost: OnLost | None = None, held: dict[str, str] | None = None
    ) -> None:
        """Begin; *held*, receipts by id, is renewed at once."""
        self.held: dict[str, str] = held or {}
        """Receipts by id. Who is in a hurry may set and pop them here, from any thread."""
        self._renewal = Renewal(lease, self.held, self._tell_lost)
        self._every_s, self._on_lost = lease.every_s, on_lost
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tambomq-heartbeat", daemon=True)
        self._thread.start()

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""
        self.held.update(held)

    def let_go(self, ids: Iterable[str]) -> None:
        """Renew *ids* no more."""
        for id in ids:
            self.held.pop(id, None)

    def close(self) -> None:
        """Renew nothing any more."""
        self._over.set()
        self._thread.join()
        self._renewal.close()

    def _run(self) -> None:
        due = time.monotonic() + (0 if self.held else self._every_s)
        while not self._over.wait(max(0.0, due - time.monotonic())):
            # From the beginning of this one: if it has to be repeated, the next is not late.
            due = time.monotonic() + self._every_s
            self._renewal.renew()

    def _tell_lost(self, lost: dict[str, str]) -> None:
        if self._on_lost is not None:
            self._on_lost(list(lost))


class ProcessHeartbeat:
    """Renews from a process, which ends when this one does, however that happens.

    A thread waits for the end of the process. If it dies (kill -9, out of memory) another is
    started at once; until that one is up, the thread renews.
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
        # What is held and what the process is told change together.
        self._lock, self._over = threading.Lock(), threading.Event()
        self._start()
        self._watcher = threading.Thread(target=self._watch, name="tambomq-heartbeat", daemon=True)
        self._watcher.start()

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""
        with self._lock:
            self._held.update(held)
            self._tell(held)

    def let_go(self, ids: Iterable[str]) -> None:
        """Renew *ids* no more."""
        gone = list(ids)
        with self._lock:
            for id in gone:
                self._held.pop(id, None)
            self._tell(gone)

    def close(self) -> None:
        """Renew nothing any more."""
        with self._lock:
            self._over.set()
            self._hang_up()
        self._watcher.join()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tambomq.store.heartbeat_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if self._on_lost is None else subprocess.PIPE,
            # Ctrl-C is for the worker, which finishes what it has begun.
            start_new_session=True,
        )
        self._ear = self._listen(self._process.stdout, self._on_lost)
        # If it is dead already, the watcher finds out.
        with suppress(OSError):
            self._write(pickle.dumps((self._lease, self._held)))

    def _watch(self) -> None:
        """Replace the process whenever it ends, until this is closed."""
        wait = pauses(longest_s=max(0.02, self._lease.every_s / 2))
        renewal = Renewal(self._lease, self._held, self._lost)
        began = time.monotonic()
        while self._ended() and not self._over.is_set():
            log.warning("the process that renews %s ended; starting another", self._lease.what)
            renewal.renew()
            if time.monotonic() - began > self._lease.every_s:
                wait = pauses(longest_s=max(0.02, self._lease.every_s / 2))
            elif self._over.wait(next(wait)):
                # It died soon after its start: do not start others as fast as they die.
                break
            began = time.monotonic()
            self._replace()
        renewal.close()

    def _ended(self) -> bool:
        """Wait for the end of the process, and of all that it says."""
        self._process.wait()
        if self._ear is not None:
            self._ear.join()
        return True

    def _replace(self) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._hang_up()
            try:
                self._start()
            except OSError as error:
                # No memory, or too many processes. The old one has ended, so it is tried again.
                log.warning("cannot start a process to renew %s: %s", self._lease.what, error)

    def _listen(self, pipe: IO[bytes] | None, on_lost: OnLost | None) -> threading.Thread | None:
        """Start to pass on what the process has lost, if anybody wants to know."""
        if pipe is None or on_lost is None:
            return None

        def run() -> None:
            with pipe:
                for told in messages(pipe):
                    if lost := drop(self._held, told):
                        on_lost(list(lost))

        ear = threading.Thread(target=run, name="tambomq-heartbeat", daemon=True)
        ear.start()
        return ear

    def _lost(self, lost: dict[str, str]) -> None:
        if self._on_lost is not None:
            self._on_lost(list(lost))

    def _tell(self, what: dict[str, str] | list[str]) -> None:
        # A process that is dead has a successor soon, which is told all that is held.
        with suppress(OSError, ValueError):
            self._write(message(what))

    def _write(self, data: bytes) -> None:
        self._inbox.write(data)
        self._inbox.flush()

    def _hang_up(self) -> None:
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
    """Yield what comes through *pipe*; what its writer died over does not count."""
    for line in pipe:
        if line.endswith(b"\n"):
            yield json.loads(line)


def heartbeat(how: str | None, lease: Lease, on_lost: OnLost | None = None) -> Heartbeat:
    """Return what renews *lease*: ``"thread"``, ``"process"``, or nothing at all."""
    if check_how(how) is None:
        return NoHeartbeat()
    return (ThreadHeartbeat if how == "thread" else ProcessHeartbeat)(lease, on_lost)


def check_how(how: str | None) -> str | None:
    """Return *how* if there is such a heartbeat; raise `SettingsError` if not."""
    if how not in (None, "thread", "process"):
        raise SettingsError(f'heartbeat is "thread", "process" or None, not {how!r}')
    return how
