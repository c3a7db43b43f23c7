"""A client's blocking connection. Every wait is bounded by a timeout.

Its twin in `async_link` does the same for asyncio.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import Final, Self

from tambomq.clock import Deadline, RetryBudget
from tambomq.errors import BrokerUnavailable
from tambomq.store.endpoint import Tls

_READ_BYTES: Final = 256 * 1024
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """An open connection. All its errors are `BrokerUnavailable`."""

    def __init__(self, host: str, port: int, tls: Tls | None, timeout_s: float) -> None:
        """Connect; *timeout_s* limits that, and how long a send may make no progress."""
        self.address, self._timeout_s = f"{host}:{port}", timeout_s
        self._unread: deque[bytes] = deque()
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
    def connect_with_retry(
        cls, patience_s: float, host: str, port: int, tls: Tls | None, timeout_s: float
    ) -> Self:
        """Connect; retry an unreachable server for *patience_s*."""
        budget = RetryBudget(patience_s)
        while True:
            try:
                return cls(host, port, tls, timeout_s)
            except BrokerUnavailable:
                if budget.is_exhausted:
                    raise
                time.sleep(budget.next_delay_s())

    def send(self, data: bytes) -> None:
        """Send all of *data*."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except _WOULD_BLOCK:
                # Read meanwhile: a server with replies may stop reading until they are taken.
                self._wait(self._timeout_s, sending=True)
                self._read()
            except OSError as error:
                raise BrokerUnavailable(self.address, error) from error

    def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the bytes received; `None` if none arrive within *timeout_s*, if one is given."""
        while not self._unread:
            if not self._read() and not self._wait(timeout_s):
                return None
        return self._unread.popleft()

    def discard(self) -> None:
        """Discard received bytes; raise if the server has closed the connection."""
        self._read()
        self._unread.clear()

    def drain_and_close(self) -> None:
        """End the output and wait until the server, having read everything, closes.

        Closing at once would reset the connection if replies are unread, and the server would
        lose what it has not read.
        """
        deadline = Deadline(self._timeout_s)
        with suppress(OSError, BrokerUnavailable):
            self._socket.shutdown(socket.SHUT_WR)
            while self._wait(deadline.left_s):
                self.discard()
        self._socket.close()

    def close(self) -> None:
        """Close the connection at once."""
        self._socket.close()

    def _read(self) -> bool:
        """Read once without blocking; false if there is nothing to read."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise BrokerUnavailable(self.address, error) from error
        if not data:
            raise BrokerUnavailable(self.address, "the server closed the connection")
        self._unread.append(data)
        return True

    def _wait(self, timeout_s: float | None, *, sending: bool = False) -> bool:
        """Wait until the socket is readable, or writable if *sending*; false after *timeout_s*."""
        self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if sending else 0))
        if self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            return True
        if sending:
            raise BrokerUnavailable(self.address, f"no data was accepted for {timeout_s:g} s")
        return False
