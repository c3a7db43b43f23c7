"""A client's connection, on a loop. Nothing waits longer than it is told to.

Its twin in `link` does the same for threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Self

from tambomq.clock import Patience
from tambomq.errors import BrokerUnavailable
from tambomq.store.connect import Tls

# So much may have arrived and not be asked for before nothing more is read.
_MOST_ARRIVED: Final = 1024 * 1024
# Who sends so much at once lets others have a turn, even if the network takes all of it.
_LONG: Final = 64 * 1024


class AsyncLink(asyncio.Protocol):
    """A connection that is open. Every error of it is `BrokerUnavailable`."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """Use `connect` instead."""
        self.address, self._timeout_s = address, timeout_s
        self._arrived: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_over = False
        self._lost: BrokerUnavailable | None = None
        self._news, self._writable, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writable.set()

    @classmethod
    async def connect(cls, host: str, port: int, tls: Tls | None, timeout_s: float) -> Self:
        """Connect; *timeout_s* bounds that, and how long the server may take no bytes."""
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
    async def reach(
        cls, patience_s: float, host: str, port: int, tls: Tls | None, timeout_s: float
    ) -> Self:
        """Connect; a server that cannot be reached is tried again for *patience_s*."""
        patience = Patience(patience_s)
        while True:
            try:
                return await cls.connect(host, port, tls, timeout_s)
            except BrokerUnavailable:
                if patience.over:
                    raise
                await asyncio.sleep(patience.next_pause_s())

    # ── what the loop tells ──────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (what a TCP client makes)
        """Keep the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep what has arrived until somebody asks."""
        if self._is_over:
            return
        self._arrived.append(data)
        self._waiting_bytes += len(data)
        self._news.set()
        if self._waiting_bytes > _MOST_ARRIVED:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Let senders wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let senders go on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self._lost = BrokerUnavailable(self.address, exc or "it hung up")
        for event in (self._news, self._writable, self._gone):
            event.set()

    # ── what clients do ──────────────────────────────────────────────────────

    async def send(self, data: bytes) -> None:
        """Hand all of *data* to the network, but for what its buffer takes."""
        self._check()
        self._transport.write(data)
        if len(data) >= _LONG:
            await asyncio.sleep(0)
        while not self._writable.is_set():
            before = self._transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._writable.wait()
            except TimeoutError:
                if self._transport.get_write_buffer_size() >= before:
                    why = f"it took nothing for {self._timeout_s:g} s"
                    raise BrokerUnavailable(self.address, why) from None
        self._check()

    async def receive(self, timeout_s: float | None) -> bytes | None:
        """Return what has arrived; `None` if that is nothing for *timeout_s*, if one is given."""
        if not self._arrived and self._lost is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
        if self._arrived:
            data = b"".join(self._arrived)
            self.discard()
            return data
        self._check()
        return None

    def discard(self) -> None:
        """Throw away what has arrived."""
        self._arrived.clear()
        if self._waiting_bytes > _MOST_ARRIVED and not self._transport.is_closing():
            self._transport.resume_reading()
        self._waiting_bytes = 0
        if self._lost is None:
            self._news.clear()

    async def finish(self) -> None:
        """Hang up when the server has read everything: it does, then.

        Who hangs up before it makes a server that answers lose what it has not read.
        """
        if self._lost is None:
            self._is_over = True
            self.discard()
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._gone.wait()
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        self._transport.abort()
        await self._gone.wait()

    def abort(self) -> None:
        """Hang up, and see to it later."""
        self._transport.abort()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
