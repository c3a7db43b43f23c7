"""A client's asyncio connection. Every wait is bounded by a timeout.

Its blocking twin is in `link`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Self

from tambomq.clock import RetryBudget
from tambomq.errors import BrokerUnavailable
from tambomq.store.endpoint import Tls

# Reading pauses while more received bytes than this wait for `receive`.
_MAX_UNREAD_BYTES: Final = 1024 * 1024
# A send of this size yields to other tasks, even if the network accepts all of it.
_YIELD_AFTER_BYTES: Final = 64 * 1024


class AsyncLink(asyncio.Protocol):
    """An open connection. All its errors are `BrokerUnavailable`."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """Use `connect` instead."""
        self.address, self._timeout_s = address, timeout_s
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._is_draining = False
        self._error: BrokerUnavailable | None = None
        self._readable, self._writable = asyncio.Event(), asyncio.Event()
        self._closed = asyncio.Event()
        self._writable.set()

    @classmethod
    async def connect(cls, host: str, port: int, tls: Tls | None, timeout_s: float) -> Self:
        """Connect; *timeout_s* limits that, and how long a send may make no progress."""
        link = cls(f"{host}:{port}", timeout_s)
        context = tls.context() if tls else None
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: link, host, port, ssl=context
                )
        except TimeoutError:
            raise BrokerUnavailable(link.address, f"no answer within {timeout_s:g} s") from None
        except (OSError, OverflowError, UnicodeError) as error:
            raise BrokerUnavailable(link.address, error) from error
        return link

    @classmethod
    async def connect_with_retry(
        cls, patience_s: float, host: str, port: int, tls: Tls | None, timeout_s: float
    ) -> Self:
        """Connect; retry an unreachable server for *patience_s*."""
        budget = RetryBudget(patience_s)
        while True:
            try:
                return await cls.connect(host, port, tls, timeout_s)
            except BrokerUnavailable:
                if budget.is_exhausted:
                    raise
                await asyncio.sleep(budget.next_delay_s())

    # ── callbacks of the event loop ──────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (what a TCP client makes)
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the bytes for `receive`."""
        if self._is_draining:
            return
        self._unread.append(data)
        self._unread_bytes += len(data)
        self._readable.set()
        if self._unread_bytes > _MAX_UNREAD_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Block senders."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Unblock senders."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake all waiters; their calls raise."""
        self._error = BrokerUnavailable(self.address, exc or "the server closed the connection")
        for event in (self._readable, self._writable, self._closed):
            event.set()

    # ── methods for clients ──────────────────────────────────────────────────

    async def send(self, data: bytes) -> None:
        """Send *data*; return once it is sent or fits into the write buffer."""
        self._check()
        self._transport.write(data)
        if len(data) >= _YIELD_AFTER_BYTES:
            await asyncio.sleep(0)
        while not self._writable.is_set():
            before = self._transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._writable.wait()
            except TimeoutError:
                if self._transport.get_write_buffer_size() >= before:
                    reason = f"no data was accepted for {self._timeout_s:g} s"
                    raise BrokerUnavailable(self.address, reason) from None
        self._check()

    async def receive(self, timeout_s: float | None) -> bytes | None:
        """Return the bytes received; `None` if none arrive within *timeout_s*, if one is given."""
        if not self._unread and self._error is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._readable.wait()
        if self._unread:
            data = b"".join(self._unread)
            self.discard()
            return data
        self._check()
        return None

    def discard(self) -> None:
        """Discard received bytes."""
        self._unread.clear()
        if self._unread_bytes > _MAX_UNREAD_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()
        self._unread_bytes = 0
        if self._error is None:
            self._readable.clear()

    async def drain_and_close(self) -> None:
        """End the output and wait until the server, having read everything, closes.

        Closing at once would reset the connection if replies are unread, and the server would
        lose what it has not read.
        """
        if self._error is None:
            self._is_draining = True
            self.discard()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._closed.wait()
        await self.close()

    async def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
        await self._closed.wait()

    def abort(self) -> None:
        """Close the connection at once, without waiting for the loop."""
        self._transport.abort()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
