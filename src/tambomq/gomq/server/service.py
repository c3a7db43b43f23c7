"""The implementation of GOMQ's calls, independent of the transport (grpc.aio or Envoy)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from tambomq.alarms.watch import AlarmWatch
from tambomq.clock import now_s, unix_date
from tambomq.errors import LimitReached, MessageTooLong, SettingsError
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys, wire
from tambomq.gomq.model import MAX_RECORDS, RECORD_BYTES, GomqStats, Options
from tambomq.gomq.ops import admin as admin_ops
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import record_deliveries
from tambomq.gomq.ops.messages import ObserveResult
from tambomq.gomq.server.auth import BATCH, TIMEOUT, Caller, PeerNameLimit
from tambomq.gomq.server.backlog_bounds import BacklogBounds
from tambomq.gomq.server.dispatcher import Dispatcher
from tambomq.gomq.server.durability import confirm
from tambomq.gomq.server.expirer import Expirer
from tambomq.gomq.server.pop_sequence import PopSequence
from tambomq.gomq.server.reaper import Reaper
from tambomq.ids import Xids, letters
from tambomq.runtime.background import keep_running
from tambomq.store.aio import AsyncStore
from tambomq.store.aio_pubsub import Subscription
from tambomq.store.call import Call
from tambomq.store.features import is_cluster

T = TypeVar("T")

_DONE = pb.Result(code=0)
_BATCH_CHARS = 12


class Service:
    """Implements GOMQ's calls on one Redis; any number of services may share it."""

    def __init__(self, store: AsyncStore, options: Options = Options()) -> None:  # noqa: B008  (frozen)
        """Store the settings; `start` starts the background work."""
        self._store, self._options = store, options
        self._journal = options.journal_policy
        self._bounds = BacklogBounds(store, options)
        levels = options.durable, options.durable_timeout_s
        self._dispatcher = Dispatcher(store, self._journal, self._bounds, *levels)
        self._expirer = Expirer(store, options.message_ttl_s, options.journal_bounds)
        self._reaper, self._watch = Reaper(store, options), AlarmWatch(store, "gomq")
        self._peer_names = PeerNameLimit(options.max_connection_peers, options.peer_timeout_s)
        self._timeout = f"{options.peer_timeout_s:g}"
        self._xids = Xids()
        self._tasks: list[asyncio.Task[None]] = []
        self._pops = PopSequence(store)
        self._watching = set[Subscription]()
        self._stopping, self._observed, self._turn = False, 0, 0

    async def start(self) -> None:
        """Start dispatching. Raises `StoreError`, or `SettingsError` on a cluster."""
        if await self._store.run(is_cluster()):
            raise SettingsError(
                "GOMQ cannot use a Redis Cluster, since its keys have no hash tags: use one server"
            )
        self._stopping = False
        await self._dispatcher.check()
        await self._watch.look()
        for each in (self._dispatcher, self._reaper, self._watch, self._expirer):
            self._tasks.append(asyncio.ensure_future(keep_running(each.run)))

    async def stop(self) -> None:
        """End every `watch`, finish background work, and stop dispatching."""
        self._stopping = True
        for notices in self._watching:
            notices.notify()
        await self._pops.finish()
        await self._dispatcher.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ping(self) -> None:
        """Check that Redis answers. Raises `StoreError`."""
        await self._store.run(admin_ops.ping())

    @property
    def stats(self) -> GomqStats:
        """The counters so far."""
        return GomqStats(
            self._dispatcher.published,
            self._dispatcher.copies,
            self._observed,
            len(self._watching),
            self._reaper.peers,
            self._reaper.returned,
            self._watch.refused,
            self._bounds.overflowed,
            self._expirer.expired,
        )

    async def publish(self, request: pb.PublishRecord, caller: Caller) -> pb.Result:
        """Append a payload to the main queue of its key."""
        if self._watch.alarms:
            self._watch.check(request.key)
        element = self._element(request)
        await self._dispatcher.publish(request.key, element, caller.durable)
        confirm(caller)
        return _DONE

    async def publish_many(self, request: pb.PublishRecords, caller: Caller) -> pb.Result:
        """Append all payloads, or none."""
        if len(request.records) > MAX_RECORDS:
            raise LimitReached("this call", MAX_RECORDS, "records")
        batches: dict[str, list[bytes]] = {}
        for record in request.records:
            batches.setdefault(record.key, []).append(self._element(record))
        if self._watch.alarms:
            for key in batches:
                self._watch.check(key, len(request.records))
        if batches:
            await self._dispatcher.publish_all(batches, caller.durable)
        confirm(caller)
        return _DONE

    async def subscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """Subscribe the consumer, with the calling peer, to the key."""
        key, consumer = _names(request)
        self._peer_names.use(caller, time.monotonic())
        hold_ms = message_ops.BACKLOG_HOLD_MS
        call = message_ops.subscribe(key, consumer, caller.peer, self._options, hold_ms=hold_ms)
        while await self._store.run(call) is None:
            await self._store.follow(leave_ops.settle(key))
        await self._dispatcher.dispatch(key)
        return _DONE

    async def unsubscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """End the subscription of the consumer, with all its peers."""
        key, consumer = _names(request)
        recorded = partial(self._recorded, consumer=consumer)
        plan = leave_ops.unsubscribe(
            key, consumer, peer=caller.peer, acked=caller.ack or "", recorded=recorded
        )
        await self._store.follow(plan)
        return _DONE

    async def observe(
        self,
        request: pb.Identification,
        caller: Caller,
        check: Callable[[pb.RecordSet], None] = lambda _: None,
    ) -> pb.RecordSet:
        """Deliver the messages that wait for the calling peer.

        If *check* raises for them, they stay queued or unacknowledged.
        """
        consumer = request.consumerID
        keys.check_consumer(consumer)
        self._peer_names.use(caller, time.monotonic())
        found = await self._observe(consumer, caller)
        if (
            caller.limit != 0
            and not found.messages
            and await self._dispatch_if_due(consumer, found)
        ):
            found = await self._observe(consumer, caller)
        records = self._records(found)
        try:
            check(records)
        except Exception:
            if not found.batch:
                self._pops.give_back(consumer, caller.peer, found)
            raise
        if found.batch:
            caller.reply[BATCH] = found.batch
            caller.reply[TIMEOUT] = self._timeout
        return records

    async def watch(
        self, request: pb.Identification, caller: Caller
    ) -> AsyncGenerator[pb.RecordSet]:
        """Deliver the messages that wait for the calling peer, then new ones as they arrive.

        Ends when the consumer has no subscription left, and when the service stops. Close the
        iterator if the client disconnects: messages that were not sent are then queued again.
        """
        consumer = request.consumerID
        keys.check_consumer(consumer)
        self._peer_names.use(caller, time.monotonic())
        while not self._stopping:
            async with self._store.listen(keys.channel(consumer)) as notices:
                self._watching.add(notices)
                try:
                    async with aclosing(
                        self._until_disconnected(notices, consumer, caller)
                    ) as sets:
                        async for records in sets:
                            yield records
                finally:
                    self._watching.discard(notices)
            if notices.is_usable:
                return

    async def _until_disconnected(
        self, notices: Subscription, consumer: str, caller: Caller
    ) -> AsyncGenerator[pb.RecordSet]:
        while notices.is_usable and not self._stopping:
            found = await self._pop(consumer, caller)
            if not found.subscriptions:
                return
            if found.messages:
                delivered = False
                try:
                    yield self._records(found)
                    delivered = True
                finally:
                    if not delivered:
                        self._pops.give_back(consumer, caller.peer, found)
            elif not await self._dispatch_if_due(consumer, found):
                if caller.limit == 0:
                    # The client observes by itself; it only wants to be notified.
                    yield pb.RecordSet()
                # Poll at a third of the peer timeout, so that an idle watcher never looks silent.
                await notices.wait(self._options.peer_timeout_s / 3)

    async def _observe(self, consumer: str, caller: Caller) -> ObserveResult:
        if caller.ack is None:
            return await self._pop(consumer, caller)
        self._turn += 1
        receiver = consumer, caller.peer, self._options
        acked, batch, limit = caller.ack, letters(_BATCH_CHARS), caller.limit
        call = message_ops.observe_kept(
            *receiver, acked=acked, batch=batch, turn=self._turn, limit=limit
        )
        return await self._store.run(self._recorded(call, consumer))

    async def _pop(self, consumer: str, caller: Caller) -> ObserveResult:
        """Pop waiting messages; if the call is cancelled meanwhile, queue them again."""
        self._turn += 1
        receiver, acked = (consumer, caller.peer, self._options), caller.ack or ""
        call = message_ops.observe(*receiver, acked=acked, turn=self._turn, limit=caller.limit)
        return await self._pops.pop(self._recorded(call, consumer), consumer, caller.peer)

    def _recorded(self, call: Call[T], consumer: str) -> Call[T]:
        return record_deliveries(self._journal, call, consumer)

    async def _dispatch_if_due(self, consumer: str, found: ObserveResult) -> bool:
        """Dispatch if the peer is new or a held backlog is released; return whether it was so."""
        if found.is_due:
            await self._dispatcher.dispatch(*await self._store.run(admin_ops.subscribed(consumer)))
        return found.is_due

    def _element(self, record: pb.PublishRecord) -> bytes:
        key, payload = record.key, record.payload
        keys.check_key(key)
        max_bytes = self._options.max_message_bytes - len(key.encode()) - RECORD_BYTES
        if len(payload) > max_bytes:
            # A reply, which is limited too, must be able to carry it.
            raise MessageTooLong(key, len(payload), max_bytes)
        now = now_s()
        return wire.encode(self._xids.next(now), unix_date(now), payload)

    def _records(self, found: ObserveResult) -> pb.RecordSet:
        records = pb.RecordSet()
        add = records.records.add
        for raw, messages in found.messages:
            key = raw.decode(errors="replace")
            for element in map(wire.decode, messages):
                value = add(key=key).value
                value.id, value.timestamp = element.id, element.timestamp
                value.payload = element.payload
        self._observed += len(records.records)
        return records


def _names(request: pb.Subscription) -> tuple[str, str]:
    keys.check_key(request.key)
    keys.check_consumer(request.consumerID)
    return request.key, request.consumerID
