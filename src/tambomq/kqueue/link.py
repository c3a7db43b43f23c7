"""A client's connection, for threads. Nothing waits longer than it is told to.

Its twin in `async_link` does the same on a loop.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import Final, Self

from tambomq.clock import Deadline, Patience
from tambomq.errors import BrokerUnavailable
from tambomq.store.connect import Tls

_READ_BYTES: Final = 256 * 1024
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """A connection that is open. Every error of it is `BrokerUnavailable`."""

    def __init__(self, host: str, port: int, tls: Tls | None, timeout_s: float) -> None:
        """Connect; *timeout_s* bounds that, and how long the server may take no bytes."""
        self.address, self._timeout_s = f"{host}:{port}", timeout_s
        self._arrived: deque[bytes] = deque()
        context = tls.context() if tls else None
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except (OSError, OverflowError, UnicodeError) as error:
            raise BrokerUnavailable(self.address, error) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._socket.settimeout(0)
        except OSError as error:
            self._socket.close()
            raise BrokerUnavailable(self.address, error) from error
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @classmethod
    def reach(
        cls, patience_s: float, host: str, port: int, tls: Tls | None, timeout_s: float
    ) -> Self:
        """Connect; a server that cannot be reached is tried again for *patience_s*."""
        patience = Patience(patience_s)
        while True:
            try:
                return cls(host, port, tls, timeout_s)
            except BrokerUnavailable:
                if patience.over:
                    raise
                time.sleep(patience.next_pause_s())

    def send(self, data: bytes) -> None:
        """Hand all of *data* to the network."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except _AGAIN:
                # A server that answers may not go on before its answers are taken.
                self._wait(self._timeout_s, sending=True)
                self._take()
            except OSError as error:
                raise BrokerUnavailable(self.address, error) from error

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return what has arrived; `None` if that is nothing for *timeout_s*, if one is given."""
        while not self._arrived:
            if not self._take() and not self._wait(timeout_s):
                return None
        return self._arrived.popleft()

    def discard(self) -> None:
        """Throw away what has arrived, and notice whether the server is gone."""
        self._take()
        self._arrived.clear()

    def finish(self) -> None:
        """Hang up when the server has read everything: it does, then.

        Who hangs up before it makes a server that answers lose what it has not read.
        """
        deadline = Deadline(self._timeout_s)
        with suppress(OSError, BrokerUnavailable):
            self._socket.shutdown(socket.SHUT_WR)
            while self._wait(deadline.left_s):
                self.discard()
        self._socket.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _take(self) -> bool:
        """Read what is there, once; false if that is nothing."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except _AGAIN:
            return False
        except OSError as error:
            raise BrokerUnavailable(self.address, error) from error
        if not data:
            raise BrokerUnavailable(self.address, "it hung up")
        self._arrived.append(data)
        return True

    def _wait(self, timeout_s: float | None, *, sending: bool = False) -> bool:
        """Wait until something can be read, or sent; false if that was in vain."""
        self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if sending else 0))
        if self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            return True
        if sending:
            raise BrokerUnavailable(self.address, f"it took nothing for {timeout_s:g} s")
        return False
