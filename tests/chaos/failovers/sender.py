"""Sends at a steady rate, many at a time, until its standard input is closed.

The command line has its `Orders` as JSON. Each confirmed send is a line in a file: when, and which.
At the end one line on standard output says how many were begun, and which errors there were.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TextIO, TypeAlias

import msgspec

from tambomq.chasqui import Queue
from tambomq.errors import TamboError
from tambomq.rsmq import AsyncRsmq

QUEUE: Final = "failovers"
MAX_IN_FLIGHT: Final = 5_000
"""What would be more is not sent, and not made up for later."""
_TICK_S = 0.01

Send: TypeAlias = Callable[[str], Awaitable[object]]


class Orders(msgspec.Struct, frozen=True):
    """What one sender does."""

    protocol: str
    url: str
    durable: str
    rate: float
    """Sends a second."""
    path: str
    """The file of confirmed sends."""


def text_of(protocol: str, number: int) -> str:
    """Return the text of the message with that number."""
    return f"{protocol}:{number}"


@asynccontextmanager
async def _rsmq(orders: Orders) -> AsyncIterator[Send]:
    async with AsyncRsmq(orders.url, durable=orders.durable) as rsmq:
        yield lambda text: rsmq.send_message(QUEUE, text)


@asynccontextmanager
async def _chasqui(orders: Orders) -> AsyncIterator[Send]:
    async with Queue(QUEUE, redis_url=orders.url, durable=orders.durable) as queue:
        yield lambda text: queue.add("job", text)


SENDERS: Final = {"rsmq": _rsmq, "chasqui": _chasqui}


class _Sender:
    """Begins sends and records how they end."""

    def __init__(self, orders: Orders, send: Send, confirmed: TextIO) -> None:
        self.errors: Counter[str] = Counter()
        self.begun = 0
        self._orders, self._send, self._confirmed = orders, send, confirmed

    async def run(self, stopped: asyncio.Future[str]) -> None:
        """Send until *stopped* is done, and wait for the last sends to end."""
        under_way: set[asyncio.Task[None]] = set()
        due, last = 0.0, time.monotonic()
        while not stopped.done():
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            due, last = due + (now - last) * self._orders.rate, now
            for _ in range(min(int(due), MAX_IN_FLIGHT - len(under_way))):
                self.begun += 1
                task = asyncio.ensure_future(self._one(self.begun))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            due %= 1
        await asyncio.gather(*under_way)

    async def _one(self, number: int) -> None:
        try:
            await self._send(text_of(self._orders.protocol, number))
        except TamboError as error:
            self.errors[type(error).__name__] += 1
        else:
            self._confirmed.write(f"{time.monotonic()} {number}\n")


async def _main(orders: Orders) -> None:
    with open(orders.path, "w") as confirmed:  # noqa: ASYNC230, PTH123  (a buffered local file)
        async with SENDERS[orders.protocol](orders) as send:
            sender, began = _Sender(orders, send, confirmed), time.monotonic()
            await sender.run(asyncio.ensure_future(asyncio.to_thread(sys.stdin.read)))
            seconds = time.monotonic() - began
    ended = {"begun": sender.begun, "seconds": seconds, "errors": sender.errors}
    print(json.dumps(ended))  # noqa: T201  (what its parent reads)


if __name__ == "__main__":
    asyncio.run(_main(msgspec.json.decode(sys.argv[1], type=Orders)))
