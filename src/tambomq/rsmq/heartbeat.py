"""Messages a worker holds, and the renewal that keeps them hidden from others.

The renewal never runs on the worker's event loop: a handler that blocks the
loop must not lose its message. In a *thread* it goes on whatever the loop does;
in a *process* of its own also while a handler holds the interpreter's lock.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Protocol

import msgspec

from tambomq.errors import SettingsError, TamboError
from tambomq.rsmq import settle_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message
from tambomq.store.connect import Endpoint
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

# Two renewals may fail before a lease runs out.
RENEWALS_PER_LEASE = 3


class Lease(msgspec.Struct, frozen=True):
    """What to renew, where, and for how long."""

    endpoint: Endpoint
    ns: str
    queue: str
    vt: float


class Heartbeat(Protocol):
    """Keeps messages hidden from others until told to let go."""

    def hold(self, messages: Iterable[Message]) -> None:
        """Renew *messages* from now on."""

    def let_go(self, messages: Iterable[Message]) -> None:
        """Renew *messages* no more."""

    def close(self) -> None:
        """Renew nothing any more."""


class NoHeartbeat:
    """Keeps nothing: a message is hidden for its `vt` and no longer."""

    def hold(self, messages: Iterable[Message]) -> None:
        """Do nothing."""

    def let_go(self, messages: Iterable[Message]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ThreadHeartbeat:
    """Renews from a thread, on a connection of its own."""

    def __init__(self, lease: Lease) -> None:
        """Begin; nothing is held yet."""
        self._lease, self._keys = lease, Keys(lease.ns)
        self._every_s = lease.vt / RENEWALS_PER_LEASE
        # Longer patience than the time to the next renewal would only make it late.
        self._store = Store(lease.endpoint, patience_s=self._every_s)
        self._held: dict[str, Message] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rsmq-heartbeat", daemon=True)
        self._thread.start()

    def hold(self, messages: Iterable[Message]) -> None:
        """Renew *messages* from now on."""
        self._held.update((message.id, message) for message in messages)

    def let_go(self, messages: Iterable[Message]) -> None:
        """Renew *messages* no more."""
        for message in messages:
            self._held.pop(message.id, None)

    def close(self) -> None:
        """Renew nothing any more."""
        self._over.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            if held := list(self._held.values()):
                self._renew(held)

    def _renew(self, held: list[Message]) -> None:
        lease = self._lease
        try:
            plan = settle_ops.hide_batch(self._keys, lease.queue, held, lease.vt)
            kept = self._store.follow(plan)
        except TamboError as error:
            log.warning("cannot renew %d messages of %r: %s", len(held), lease.queue, error)
            return
        for message, ours in zip(held, kept, strict=True):
            # It may just have been settled; if not, settling will find out and tell.
            if not ours:
                self.let_go((message,))


class ProcessHeartbeat:
    """Renews from a process, which ends when this one does, however that happens."""

    def __init__(self, lease: Lease) -> None:
        """Start the process; nothing is held yet."""
        if lease.endpoint.credentials is not None:
            raise SettingsError(
                'heartbeat="process" cannot ask a credential provider: '
                "put user and password in the URL"
            )
        self._lease = lease
        self._held: dict[str, Message] = {}
        self._start()

    def hold(self, messages: Iterable[Message]) -> None:
        """Renew *messages* from now on."""
        batch = list(messages)
        self._held.update((message.id, message) for message in batch)
        self._tell(b"".join(_held_line(message) for message in batch))

    def let_go(self, messages: Iterable[Message]) -> None:
        """Renew *messages* no more."""
        gone = [message for message in messages if self._held.pop(message.id, None)]
        self._tell(b"".join(b"-%s\n" % message.id.encode() for message in gone))

    def close(self) -> None:
        """Renew nothing any more."""
        with suppress(OSError):
            self._inbox.close()
        self._process.wait()

    def _start(self) -> None:
        # A session of its own: Ctrl-C is for the worker, which finishes what it has begun.
        command = [sys.executable, "-m", "tambomq.rsmq.heartbeat_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self._write(pickle.dumps(self._lease))

    def _tell(self, lines: bytes) -> None:
        try:
            self._write(lines)
        except OSError:
            log.warning("the process that renews %r ended; starting another", self._lease.queue)
            self.close()
            self._start()
            self._write(b"".join(map(_held_line, self._held.values())))

    def _write(self, lines: bytes) -> None:
        self._inbox.write(lines)
        self._inbox.flush()

    @property
    def _inbox(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101  (started with a pipe)
        return self._process.stdin


def _held_line(message: Message) -> bytes:
    return b"+%s %d\n" % (message.id.encode(), message.receipt)


def heartbeat(how: str | None, lease: Lease) -> Heartbeat:
    """Return what renews *lease*: ``"thread"``, ``"process"``, or nothing at all."""
    if how is None:
        return NoHeartbeat()
    if how not in ("thread", "process"):
        raise SettingsError(f'heartbeat is "thread", "process" or None, not {how!r}')
    return ThreadHeartbeat(lease) if how == "thread" else ProcessHeartbeat(lease)
