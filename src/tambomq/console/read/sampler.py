"""`Sampler`: one refresh for all viewers, and none while nobody looks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tambomq.clock import backoff_delays, now_ms
from tambomq.console.model import Overview, RedisStatus, Series, Totals
from tambomq.console.read.reader import Reader
from tambomq.errors import StoreError
from tambomq.log import mask_url

EVERY_S: Final = 2.0
SECOND_AFTER_S: Final = 0.5
"""The second refresh comes soon after the first: rates need two."""
LINGER_S: Final = 10.0
"""Sampling goes on for so long after the last viewer has left or asked."""
ANSWER_WITHIN_S: Final = 5.0
LONGEST_PAUSE_S: Final = 10.0
"""The longest pause before Redis is tried again."""
_IDLE_SHARE: Final = 10
"""A refresh that takes long is not repeated before so many times as long."""

_log = logging.getLogger(__name__)


class Sampler:
    """Refreshes *reader* every *every_s* while somebody watches or asks."""

    def __init__(self, reader: Reader, every_s: float = EVERY_S) -> None:
        self._reader, self._every_s = reader, every_s
        self._latest: Overview | None = None
        self._published = asyncio.Event()
        self._is_stale = False
        """Whether the last overview is from before a pause in which nobody looked."""
        self._watchers = 0
        self._asked_at = float("-inf")
        self._refreshed_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._delays: Iterator[float] | None = None
        self._lost_since_ms: int | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[AsyncIterator[Overview]]:
        """Yield the overviews, beginning with the last one, until the block ends."""
        self._watchers += 1
        self._wake()
        try:
            yield self._updates()
        finally:
            self._watchers -= 1
            self._asked_at = time.monotonic()

    async def latest(self) -> Overview:
        """Return the last overview if it is fresh, else wait for the next."""
        self._asked_at = time.monotonic()
        self._wake()
        while self._latest is None or self._is_stale:
            await self._published.wait()
        return self._latest

    async def close(self) -> None:
        """Stop sampling; those who watch get no more overviews."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _updates(self) -> AsyncIterator[Overview]:
        last: Overview | None = None
        while True:
            if self._latest is None or self._latest is last or self._is_stale:
                await self._published.wait()
            elif (overview := self._latest) is not last:
                last = overview
                yield overview

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._is_stale = time.monotonic() - self._refreshed_at > self._every_s
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        pause_s = SECOND_AFTER_S
        while self._watchers or time.monotonic() - self._asked_at < LINGER_S:
            began = time.monotonic()
            overview, retry_s = await self._next()
            self._refreshed_at = time.monotonic()
            self._publish(overview)
            took_s = self._refreshed_at - began
            await asyncio.sleep(pause_s if retry_s is None else retry_s)
            pause_s = max(self._every_s, min(_IDLE_SHARE * took_s, LONGEST_PAUSE_S))

    def _publish(self, overview: Overview) -> None:
        self._latest, self._is_stale = overview, False
        published, self._published = self._published, asyncio.Event()
        published.set()

    async def _next(self) -> tuple[Overview, float | None]:
        """Return an overview; if Redis is lost, the last one and the pause before the next try."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                overview = await self._reader.overview()
        except StoreError as error:
            return self._lost(mask_url(str(error)))
        except TimeoutError:
            return self._lost(f"Redis does not answer within {ANSWER_WITHIN_S:g} s")
        except Exception:  # noqa: BLE001  (viewers must see that something is wrong)
            _log.exception("the queues cannot be read")
            return self._lost("the queues cannot be read; the log says why")
        self._delays = self._lost_since_ms = None
        return overview, None

    def _lost(self, why: str) -> tuple[Overview, float]:
        now = now_ms()
        self._delays = self._delays or backoff_delays(self._every_s / 2, LONGEST_PAUSE_S)
        self._lost_since_ms = self._lost_since_ms or now
        retry_s = next(self._delays)
        last = self._latest or _nothing_seen(self._reader, now)
        status = msgspec.structs.replace(
            last.redis,
            ok=False,
            latency_ms=None,
            lost_since_ms=self._lost_since_ms,
            next_try_ms=now + round(retry_s * 1000),
            why=why,
        )
        return msgspec.structs.replace(last, redis=status), retry_s


def _nothing_seen(reader: Reader, at_ms: int) -> Overview:
    totals = Totals(
        in_per_s=0, out_per_s=0, failed_per_s=0, dead=0, dead_last_hour=None, backlog=0, workers=0
    )
    return Overview(
        at_ms=at_ms,
        redis=RedisStatus(ok=False, url=str(reader.store.endpoint)),
        totals=totals,
        throughput=Series(times_ms=[], values={}),
        queues=[],
    )
