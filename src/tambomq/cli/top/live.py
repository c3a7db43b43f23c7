"""Runs ``tambo top``: reads overviews, keys and the size of the terminal until ``q`` is typed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from tambomq.cli.top.screen import KEYS, screen
from tambomq.cli.top.served import with_served
from tambomq.clock import now_ms
from tambomq.console.model import Overview
from tambomq.console.read.reader import Reader
from tambomq.console.read.sampler import Sampler
from tambomq.errors import StoreRefused, StoreUnavailable
from tambomq.store.aio import AsyncStore

_QUIT: Final = ("q", "Q", "\x03", "\x04")
_REFUSALS: Final = ("NOPERM", "NOAUTH", "WRONGPASS")
"""How errors begin with which a server that runs refuses a user."""
_REDRAW_S: Final = 1.0
"""While Redis is lost, the seconds on the screen go on."""


@asynccontextmanager
async def overviews(
    url: str, ns: str, every_s: float, http_url: str
) -> AsyncIterator[AsyncIterator[Overview]]:
    """Yield the overviews of all queues, one for each refresh."""
    store = AsyncStore(url, patience_s=0)
    sampler = Sampler(Reader(store, rsmq_ns=ns), every_s)

    async def served(updates: AsyncIterator[Overview]) -> AsyncIterator[Overview]:
        async for overview in updates:
            yield await with_served(overview, http_url)

    try:
        async with sampler.watching() as updates:
            yield served(updates)
    finally:
        await sampler.close()
        await store.close()


async def once(url: str, ns: str, http_url: str) -> Overview:
    """Return one overview with rates, which take two refreshes. Raises `StoreError`.

    A ``tambo serve`` that no one watched takes its own two first, so it is given one more.
    """
    async with overviews(url, ns, 1.0, http_url) as updates:
        seen = 0
        async for overview in updates:
            if not overview.redis.ok:
                why = overview.redis.why
                raise StoreRefused(why) if why.startswith(_REFUSALS) else StoreUnavailable(why)
            seen += 1
            is_served = any(row.protocol == "kqueue" for row in overview.queues)
            if seen > 1 + is_served:
                return overview
    raise StoreUnavailable("the sampling of the queues has ended")


class TopDisplay:
    """The screen, and what keys have chosen."""

    def __init__(self, sort: str) -> None:
        self._sort, self._backwards = sort, False
        self._overview: Overview | None = None
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self.ended = asyncio.Event()

    def on_keys(self, text: str) -> None:
        """Do what the keys in *text* ask for."""
        for key in text:
            if key in _QUIT:
                self.ended.set()
            elif key in KEYS:
                self._backwards = False
                self._sort = KEYS[key]
            elif key == "r":
                self._backwards = not self._backwards
        self.draw()

    def draw(self) -> None:
        """Draw what is known, for the present size of the terminal."""
        made = screen(
            self._overview,
            sort=self._sort,
            backwards=self._backwards,
            size=(self._console.width, self._console.height),
            now_ms=now_ms(),
        )
        self._live.update(made, refresh=True)

    async def run(self, updates: AsyncIterator[Overview]) -> None:
        """Show *updates* until a key or a signal ends it."""
        loop = asyncio.get_running_loop()
        with _single_keys(sys.stdin.fileno()), self._live:
            loop.add_reader(sys.stdin.fileno(), self._on_readable)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.ended.set)
            loop.add_signal_handler(signal.SIGWINCH, self.draw)
            self.draw()
            tasks = [
                asyncio.ensure_future(each)
                for each in (self._follow(updates), self._tick(), self.ended.wait())
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                loop.remove_reader(sys.stdin.fileno())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _on_readable(self) -> None:
        data = os.read(sys.stdin.fileno(), 1024)
        if not data:  # the terminal is gone
            self.ended.set()
        # Cursor keys and the like come as an escape with letters: not meant for us.
        elif not data.startswith(b"\x1b"):
            self.on_keys(data.decode("utf-8", "replace"))

    async def _follow(self, updates: AsyncIterator[Overview]) -> None:
        async for overview in updates:
            self._overview = overview
            self.draw()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_REDRAW_S)
            if self._overview is not None and not self._overview.redis.ok:
                self.draw()


@contextmanager
def _single_keys(terminal: int) -> Iterator[None]:
    """Give keys to us as they are typed, without showing them."""
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
