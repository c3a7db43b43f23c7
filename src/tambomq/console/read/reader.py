"""`Reader`: everything the console shows of queues, read from Redis and from this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from tambomq.console.model import (
    LeaderRow,
    Overview,
    QueueDetail,
    QueueRef,
    QueueRow,
    ScheduleRow,
    Totals,
    WorkerRow,
)
from tambomq.console.read.detail import QueueDetails
from tambomq.console.read.history import YOUNG_MS, History
from tambomq.console.read.queues.broker_view import BrokerView
from tambomq.console.read.queues.chasqui import ChasquiQueues
from tambomq.console.read.queues.directory import QueueDirectory
from tambomq.console.read.queues.gomq import GomqQueues
from tambomq.console.read.queues.kqueue import KqueueQueues
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.queues.rsmq import RsmqQueues
from tambomq.console.read.queues.sizes import QueueSizes
from tambomq.console.read.rates import Rates, RateWindow
from tambomq.console.read.schedules import read_schedules
from tambomq.console.read.server import ServerState, read_server
from tambomq.console.read.trouble import DEATHS_MINUTES, TroubleFacts, trouble_of
from tambomq.console.read.workers import WorkerDirectory, connection_rows
from tambomq.errors import QueueNotFound
from tambomq.gomq.keys import is_key
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, Keys, is_queue
from tambomq.runtime.coalesced import Coalesced
from tambomq.store.aio import AsyncStore

MAX_QUEUES: Final = 1000
"""An overview has at most this many queues, the first by protocol and name.

With 400 RSMQ, 400 ChasquiMQ and 200 GOMQ queues a refresh takes 11 ms of Redis's time (its CPU time
over 20 refreshes, Valkey 9.1.2), 0.6 % of it at one refresh in 2 s, and 37 ms of this process.
"""
MAX_AGE_S: Final = 0.4
"""A refresh is shared by all who ask within this time."""
RECENT_S: Final = 2.0
"""Pages of single queues, workers and schedules may use a refresh of this age."""
MAX_WORKED: Final = 200
"""Queues whose workers are listed: those with workers first."""


class Refresh(msgspec.Struct, frozen=True):
    """The numbers of all queues at one moment."""

    server: ServerState
    samples: Mapping[QueueRef, QueueSample]
    rates: Mapping[QueueRef, Rates]
    cut_off: int
    taken_at_s: float
    """By the monotonic clock."""


class Reader:
    """Reads the queues of *store*, and those of a KqueueMsgQ server in this process.

    *store* should give up soon (``patience_s=0``): a page had better say that Redis is lost.
    """

    def __init__(
        self,
        store: AsyncStore,
        *,
        rsmq_ns: str = NAMESPACE,
        brokers: BrokerView | None = None,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self.store, self.rsmq_keys = store, Keys(rsmq_ns)
        self.history = History()
        self._directory = QueueDirectory(store, self.rsmq_keys)
        self._rsmq, self._chasqui = RsmqQueues(store, self.rsmq_keys), ChasquiQueues(store)
        self._gomq, self._kqueue = GomqQueues(store), KqueueQueues(brokers)
        self._sizes = QueueSizes(store, self.rsmq_keys, self._gomq)
        self._workers = WorkerDirectory(store, self.rsmq_keys)
        self._details = QueueDetails(store, self.rsmq_keys, self._workers)
        self._brokers = brokers
        self._last: Refresh | None = None
        self._windows: dict[QueueRef, RateWindow] = {}
        self._refreshed = Coalesced(self._refresh, max_age_s)
        self._watched_since_ms: int | None = None

    async def refs(self) -> list[QueueRef]:
        """Return all queues that are known, without reading their numbers. Raises `StoreError`."""
        found = await self._directory.refs()
        return sorted([*found, *(QueueRef("kqueue", name) for name in self._kqueue.sample())])

    async def overview(self) -> Overview:
        """Return every queue. Raises `StoreError`."""
        refresh = await self._refreshed.get()
        at_ms = refresh.server.now_ms
        return Overview(
            at_ms=at_ms,
            redis=refresh.server.status,
            totals=self._totals(refresh),
            throughput=self.history.totals(at_ms),
            queues=[self.row(ref, refresh) for ref in refresh.samples],
            cut_off=refresh.cut_off,
            watched_since_ms=self._watched_since_ms,
        )

    async def queue(self, ref: QueueRef) -> QueueDetail:
        """Return the page of a queue. Raises `QueueNotFound`, `StoreError`."""
        refresh = await self.recent()
        if ref not in refresh.samples:
            refresh = await self._beyond(ref, refresh)
        row, sample = self.row(ref, refresh), refresh.samples[ref]
        at_ms = refresh.server.now_ms
        detail = await self._details.read(ref, row, sample, self.history.of(str(ref)), at_ms)
        if ref.protocol != "kqueue":
            return detail
        return msgspec.structs.replace(detail, workers=self._connections(ref))

    async def workers(self, queue: str | None = None) -> list[WorkerRow]:
        """Return the workers of all queues, or of one, such as ``chasqui:mails``.

        Raises `StoreError`, and `InvalidFormat` if *queue* is none.
        """
        refresh = await self.recent()
        refs = sorted(refresh.samples, key=lambda ref: not refresh.samples[ref].workers)
        chosen = refs[:MAX_WORKED] if queue is None else [QueueRef.parse(queue)]
        rows = await self._workers.workers(chosen, refresh.server.now_ms)
        if any(ref.protocol == "kqueue" for ref in chosen):
            rows += self._connections(None if queue is None else chosen[0])
        return rows

    def _connections(self, ref: QueueRef | None) -> list[WorkerRow]:
        """Return the connections of KqueueMsgQ, or the consumers of one of its queues."""
        if self._brokers is None:
            return []
        rows = connection_rows(self._kqueue.connections(), self._brokers.max_buffer_bytes)
        if ref is None:
            return rows
        return [row for row in rows if not {"*", ref.name}.isdisjoint(row.subscriptions)]

    async def leaders(self) -> list[LeaderRow]:
        """Return who leads each ChasquiMQ queue. Raises `StoreError`."""
        names = [ref.name for ref in (await self.recent()).samples if ref.protocol == "chasqui"]
        return await self._workers.leaders(names)

    async def schedules(self) -> list[ScheduleRow]:
        """Return the recurring jobs of all queues, the next first. Raises `StoreError`."""
        refresh = await self.recent()
        names = [ref.name for ref, sample in refresh.samples.items() if sample.recurring]
        return await read_schedules(self.store, names, refresh.server.now_ms)

    async def recent(self) -> Refresh:
        """Return the last refresh, or a new one if it is old. Raises `StoreError`."""
        last = self._last
        if last is not None and time.monotonic() - last.taken_at_s < RECENT_S:
            return last
        return await self._refreshed.get()

    async def _beyond(self, ref: QueueRef, refresh: Refresh) -> Refresh:
        """Return *refresh* with a queue that the overview leaves out. Raises `QueueNotFound`."""
        # The refresh may be some seconds old, and what was sent since is not delayed.
        now_ms = refresh.server.clock_ms()
        found: Mapping[str, QueueSample] = {}
        # Readers of their own: those of the overview keep counts between refreshes.
        match ref.protocol:
            case "rsmq" if is_queue(ref.name):
                queues = RsmqQueues(self.store, self.rsmq_keys)
                found = await queues.sample([ref.name], now_ms)
            case "chasqui":
                found = await ChasquiQueues(self.store).sample([ref.name], now_ms)
            case "gomq" if is_key(ref.name):
                found = await GomqQueues(self.store).sample([ref.name], now_ms)
        sample = found.get(ref.name)
        if sample is None or (ref.protocol != "rsmq" and _is_empty(sample)):
            raise QueueNotFound(str(ref))
        samples, rates = {**refresh.samples, ref: sample}, {**refresh.rates, ref: Rates()}
        return msgspec.structs.replace(refresh, samples=samples, rates=rates)

    async def _refresh(self) -> Refresh:
        server = await read_server(self.store)
        refs = await self._directory.refs()
        shown = _without_dead_queues(refs)[:MAX_QUEUES]
        names: dict[str, list[str]] = {"rsmq": [], "chasqui": [], "gomq": []}
        for ref in shown:
            names[ref.protocol].append(ref.name)
        now_ms = server.clock_ms()  # to list the queues may have taken a while
        rsmq, chasqui, gomq, _ = await asyncio.gather(
            self._rsmq.sample(names["rsmq"], now_ms),
            self._chasqui.sample(names["chasqui"], now_ms),
            self._gomq.sample(names["gomq"], now_ms),
            self._sizes.look(shown),
        )
        samples = {QueueRef("rsmq", name): each for name, each in rsmq.items()}
        samples |= {QueueRef("chasqui", name): each for name, each in chasqui.items()}
        samples |= {QueueRef("gomq", name): each for name, each in gomq.items()}
        samples |= {QueueRef("kqueue", name): each for name, each in self._kqueue.sample().items()}
        cut_off = len(_without_dead_queues(refs)) - len(shown)
        rates = self._rates(samples, server.now_ms)
        self._last = Refresh(server, samples, rates, cut_off, time.monotonic())
        return self._last

    def _rates(self, samples: Mapping[QueueRef, QueueSample], now_ms: int) -> dict[QueueRef, Rates]:
        at_s = time.monotonic()
        self._windows = {ref: self._windows.get(ref) or RateWindow() for ref in samples}
        rates = {ref: self._windows[ref].add(at_s, sample) for ref, sample in samples.items()}
        self.history.record(now_ms, {str(ref): (samples[ref], rates[ref]) for ref in samples})
        self._watched_since_ms = self._watched_since_ms or now_ms
        return rates

    def row(self, ref: QueueRef, refresh: Refresh) -> QueueRow:
        """Return a queue of *refresh* as the overview shows it."""
        sample, rates = refresh.samples[ref], refresh.rates[ref]
        at_ms, past = refresh.server.now_ms, self.history.of(str(ref))
        deaths = past.died_within(at_ms, DEATHS_MINUTES)
        size = self._sizes.of(ref)
        facts = TroubleFacts(protocol=ref.protocol, sample=sample, rates=rates, deaths=deaths)
        return QueueRow(
            queue=str(ref),
            protocol=ref.protocol,
            name=ref.name,
            depth=sample.depth,
            visible=sample.visible,
            in_flight=sample.in_flight,
            delayed=sample.delayed,
            dead=sample.dead,
            oldest_s=sample.oldest_s,
            in_per_s=rates.entered or 0.0,
            out_per_s=rates.left or 0.0,
            done_per_s=rates.done or 0.0,
            failed_per_s=rates.failed,
            drain_s=rates.drain_s(sample.depth),
            # What is gone at each look does not pile up, whatever the rates of the last seconds.
            grows_per_s=rates.grows_per_s if sample.depth else None,
            # Weighed at another moment than counted, or held where it is not weighed.
            size_bytes=None if size == 0 and sample.depth else size,
            paused=sample.paused,
            trouble=trouble_of(facts),
            backlog=past.depths(at_ms),
            backlog_fine=past.fine_depths(at_ms) if self._is_young(at_ms) else [],
        )

    def _is_young(self, at_ms: int) -> bool:
        return at_ms - (self._watched_since_ms or at_ms) < YOUNG_MS

    def _totals(self, refresh: Refresh) -> Totals:
        samples, rates = refresh.samples.values(), refresh.rates.values()
        return Totals(
            in_per_s=sum(each.entered or 0.0 for each in rates),
            out_per_s=sum(each.done or 0.0 for each in rates),
            failed_per_s=sum(each.failed or 0.0 for each in rates),
            dead=sum(each.dead or 0 for each in samples),
            dead_last_hour=self.history.died_within_hour(refresh.server.now_ms),
            backlog=sum(each.depth for each in samples),
            workers=sum(each.workers or 0 for each in samples),
        )


def _is_empty(sample: QueueSample) -> bool:
    """Whether nothing shows that the queue was ever used."""
    traces = (sample.depth, sample.entered, sample.dead, sample.events_seen, sample.recurring)
    return not any(traces) and not sample.workers and not sample.damaged


def _without_dead_queues(refs: list[QueueRef]) -> list[QueueRef]:
    """Leave out dead-letter queues of RSMQ: they are counted with the queue they belong to."""
    names = {ref.name for ref in refs if ref.protocol == "rsmq"}
    return [
        ref
        for ref in refs
        if ref.protocol != "rsmq"
        or not ref.name.endswith(DEAD_SUFFIX)
        or ref.name.removesuffix(DEAD_SUFFIX) not in names
    ]
