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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any, Protocol, TypeAlias

from tambomq.errors import SettingsError, TamboError
from tambomq.store.call import Plan
from tambomq.store.connect import Endpoint
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

OnLost: TypeAlias = Callable[[list[str]], None]
"""Told the ids that turned out to be another's, or settled just now, and are held no longer.

It is called from a thread of the heartbeat and may neither wait nor raise, nor
use the heartbeat: an event loop is told with `call_soon_threadsafe`.
"""


class Lease(Protocol):
    """What to renew, where, and how often. It pickles, if a process is to renew it."""

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is."""

    @property
    def every_s(self) -> float:
        """How often to renew; a third of the lease lets two renewals fail."""

    @property
    def what(self) -> str:
        """What is held, for log lines: ``queue 'orders'``."""

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        """Renew *held*, receipts by id; return the ids that are not ours any more."""


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
    """Renews from a thread, on a connection of its own."""

    def __init__(self, lease: Lease, on_lost: OnLost | None = None) -> None:
        """Begin; nothing is held yet."""
        self.held: dict[str, str] = {}
        """Receipts by id. Who is in a hurry may set and pop them here, from any thread."""
        self._lease, self._on_lost = lease, on_lost
        # Longer patience than the time to the next renewal would only make it late.
        self._store = Store(lease.endpoint, patience_s=lease.every_s)
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
        self._store.close()

    def _run(self) -> None:
        while not self._over.wait(self._lease.every_s):
            if held := self.held.copy():
                self._renew(held)

    def _renew(self, held: dict[str, str]) -> None:
        try:
            gone = self._store.follow(self._lease.renew(held))
        except Exception as error:
            # Whatever a credential provider raises, too: nobody else would renew.
            surprise = not isinstance(error, TamboError)
            what = self._lease.what
            log.warning(
                "cannot renew %d leases of %s: %s", len(held), what, error, exc_info=surprise
            )
            return
        if lost := drop(self.held, {id: held[id] for id in gone}):
            self._tell_lost(lost)

    def _tell_lost(self, lost: dict[str, str]) -> None:
        if self._on_lost is not None:
            self._on_lost(list(lost))


class ProcessHeartbeat:
    """Renews from a process, which ends when this one does, however that happens."""

    def __init__(self, lease: Lease, on_lost: OnLost | None = None) -> None:
        """Start the process; nothing is held yet."""
        if lease.endpoint.credentials is not None:
            raise SettingsError(
                'heartbeat="process" cannot ask a credential provider: '
                "put user and password in the URL"
            )
        self._lease, self._on_lost = lease, on_lost
        self._held: dict[str, str] = {}
        self._start()

    def hold(self, held: dict[str, str]) -> None:
        """Renew *held*, receipts by id, from now on."""
        self._held.update(held)
        self._tell(held)

    def let_go(self, ids: Iterable[str]) -> None:
        """Renew *ids* no more."""
        gone = list(ids)
        for id in gone:
            self._held.pop(id, None)
        self._tell(gone)

    def close(self) -> None:
        """Renew nothing any more."""
        with suppress(OSError):
            self._inbox.close()
        self._process.wait()
        if self._ear is not None:
            self._ear.join()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tambomq.store.heartbeat_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if self._on_lost is None else subprocess.PIPE,
            # Ctrl-C is for the worker, which finishes what it has begun.
            start_new_session=True,
        )
        self._ear = self._listen(self._process.stdout, self._on_lost)
        self._write(pickle.dumps(self._lease))

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

    def _tell(self, what: dict[str, str] | list[str]) -> None:
        try:
            self._write(message(what))
        except OSError:
            log.warning("the process that renews %s ended; starting another", self._lease.what)
            self.close()
            self._start()
            self._write(message(self._held))

    def _write(self, data: bytes) -> None:
        self._inbox.write(data)
        self._inbox.flush()

    @property
    def _inbox(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101  (started with a pipe)
        return self._process.stdin


def drop(held: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """Hold *lost* no longer; return those that were still held.

    The same id with another receipt was received anew meanwhile: it stays.
    """
    dropped = {}
    for id, receipt in lost.items():
        # It may be let go at any moment, by another thread.
        with suppress(KeyError):
            if held[id] == receipt:
                del held[id]
                dropped[id] = receipt
    return dropped


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
