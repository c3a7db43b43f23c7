"""What GOMQ's calls do. No transport: a door brings requests here and takes replies away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tambomq.clock import now_s, unix_date
from tambomq.errors import LimitReached, MessageTooLong, SettingsError, StoreError
from tambomq.gomq import admin_ops, keys, leave_ops, ops, wire
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.caller import BATCH, TIMEOUT, Caller, Names
from tambomq.gomq.dispatcher import Dispatcher
from tambomq.gomq.model import MAX_RECORDS, RECORD_BYTES, Options
from tambomq.gomq.ops import Found
from tambomq.gomq.reaper import Reaper
from tambomq.gomq.recorded import told
from tambomq.ids import Xids, letters
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.ears import Hearing
from tambomq.store.features import is_cluster

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DONE = pb.Result(code=0)
_BATCH_CHARS = 12


@dataclass(frozen=True, slots=True)
class Stats:
    """What a service has done since its start."""

    published: int
    """Messages taken."""
    copies: int
    """Put into dedicated queues."""
    observed: int
    """Handed out."""
    watchers: int
    """Calls to Watch under way."""
    disconnected: int
    """Peers that were silent for too long."""
    returned: int
    """Messages of theirs that went back to a main queue."""


class Service:
    """The calls of GOMQ on one Redis; any number of services may share it."""

    def __init__(self, store: AsyncStore, options: Options = Options()) -> None:  # noqa: B008  (frozen)
        """Nothing is done before `start`."""
        self._store, self._options = store, options
        self._recording = options.recording
        self._dispatcher = Dispatcher(store, self._recording, options.max_backlog)
        self._reaper = Reaper(store, options)
        self._names = Names(options.max_connection_peers, options.peer_timeout_s)
        self._timeout = f"{options.peer_timeout_s:g}"
        self._xids = Xids()
        self._tasks: list[asyncio.Task[None]] = []
        self._background = set[asyncio.Task[None]]()
        self._bells = set[Hearing]()
        self._stopping, self._published, self._observed, self._turn = False, 0, 0, 0

    async def start(self) -> None:
        """Begin to dispatch. Raises `StoreError`, or `SettingsError` on a cluster."""
        if await self._store.run(is_cluster()):
            raise SettingsError(
                "GOMQ's keys cannot be spread over a cluster: give it a server of its own"
            )
        self._stopping = False
        for duty in (self._dispatcher, self._reaper):
            self._tasks.append(asyncio.ensure_future(duty.run()))

    async def stop(self) -> None:
        """End every `watch`, finish what is under way, and dispatch no more."""
        self._stopping = True
        for bell in self._bells:
            bell.rouse()
        while self._background:
            await asyncio.wait(self._background)
        await self._dispatcher.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ping(self) -> None:
        """Return if calls can be served. Raises `StoreError`."""
        await self._store.run(admin_ops.ping())

    @property
    def stats(self) -> Stats:
        """What was done so far."""
        return Stats(
            self._published,
            self._dispatcher.copies,
            self._observed,
            len(self._bells),
            self._reaper.peers,
            self._reaper.returned,
        )

    async def publish(self, request: pb.PublishRecord, _: Caller) -> pb.Result:
        """Append a payload to the main queue of its key."""
        await self._dispatcher.publish(request.key, self._element(request))
        self._published += 1
        return _DONE

    async def publish_many(self, request: pb.PublishRecords, _: Caller) -> pb.Result:
        """Append all payloads, or none."""
        if len(request.records) > MAX_RECORDS:
            raise LimitReached("this call", MAX_RECORDS, "records")
        batches: dict[str, list[bytes]] = {}
        for record in request.records:
            batches.setdefault(record.key, []).append(self._element(record))
        if batches:
            await self._dispatcher.publish_all(batches)
            self._published += len(request.records)
        return _DONE

    async def subscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """Let the consumer, and the peer that calls, receive the key."""
        key, consumer = _checked(request)
        self._names.use(caller, time.monotonic())
        hold_ms = ops.HOLD_MS
        call = ops.subscribe(key, consumer, caller.peer, self._options, hold_ms=hold_ms)
        while await self._store.run(call) is None:
            await self._store.follow(leave_ops.settle(key))
        await self._dispatcher.dispatch(key)
        return _DONE

    async def unsubscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """Let the consumer, with all its peers, receive the key no more."""
        key, consumer = _checked(request)
        told = partial(self._told, consumer=consumer, caller=caller)
        plan = leave_ops.unsubscribe(
            key, consumer, peer=caller.peer, acked=caller.ack or "", told=told
        )
        await self._store.follow(plan)
        return _DONE

    async def observe(self, request: pb.Identification, caller: Caller) -> pb.RecordSet:
        """Hand out what waits for the peer that calls."""
        consumer = request.consumerID
        keys.check_consumer(consumer)
        self._names.use(caller, time.monotonic())
        found = await self._found(consumer, caller)
        if caller.most != 0 and not found.messages and await self._joined(consumer, found):
            found = await self._found(consumer, caller)
        if found.batch:
            caller.reply[BATCH] = found.batch
            caller.reply[TIMEOUT] = self._timeout
        return self._records(found)

    async def watch(
        self, request: pb.Identification, caller: Caller
    ) -> AsyncGenerator[pb.RecordSet]:
        """Hand out what waits for the peer that calls, and what comes, as it comes.

        Ends when the consumer has no subscription left, and when the service stops. Close the
        iterator when its reader is gone: what was not taken waits for the peer again.
        """
        consumer = request.consumerID
        keys.check_consumer(consumer)
        self._names.use(caller, time.monotonic())
        while not self._stopping:
            async with self._store.listen(keys.channel(consumer)) as bell:
                self._bells.add(bell)
                try:
                    async with aclosing(self._until_deaf(bell, consumer, caller)) as sets:
                        async for records in sets:
                            yield records
                finally:
                    self._bells.discard(bell)
            if bell.sound:
                return

    async def _until_deaf(
        self, bell: Hearing, consumer: str, caller: Caller
    ) -> AsyncGenerator[pb.RecordSet]:
        while bell.sound and not self._stopping:
            found = await self._popped(consumer, caller)
            if not found.subscriptions:
                return
            if found.messages:
                taken = False
                try:
                    yield self._records(found)
                    taken = True
                finally:
                    if not taken:
                        self._give_back(consumer, caller.peer, found)
            elif not await self._joined(consumer, found):
                if caller.most == 0:
                    # It only wants to know when to observe.
                    yield pb.RecordSet()
                # Looked at three times in its time, it is never taken for silent.
                await bell.wait(self._options.peer_timeout_s / 3)

    async def _found(self, consumer: str, caller: Caller) -> Found:
        if caller.ack is None:
            return await self._popped(consumer, caller)
        self._turn += 1
        call = ops.observe_kept(
            consumer,
            caller.peer,
            self._options,
            acked=caller.ack,
            batch=letters(_BATCH_CHARS),
            turn=self._turn,
            limit=caller.most,
        )
        return await self._store.run(self._told(call, consumer, caller))

    async def _popped(self, consumer: str, caller: Caller) -> Found:
        """Pop what waits; a caller that goes away meanwhile finds it there again."""
        self._turn += 1
        call = ops.observe(
            consumer,
            caller.peer,
            self._options,
            acked=caller.ack or "",
            turn=self._turn,
            limit=caller.most,
        )
        pop = asyncio.ensure_future(self._store.run(self._told(call, consumer, caller)))
        try:
            return await asyncio.shield(pop)
        except asyncio.CancelledError:
            self._in_background(self._undo(pop, consumer, caller.peer))
            raise

    def _told(self, call: Call[T], consumer: str, caller: Caller) -> Call[T]:
        return told(self._recording, call, consumer, caller.ack or "")

    async def _joined(self, consumer: str, found: Found) -> bool:
        """Whether a dispatch was due: the peer has just come, or a backlog was held until now."""
        if found.is_due:
            await self._dispatcher.dispatch(*await self._store.run(admin_ops.subscribed(consumer)))
        return found.is_due

    async def _undo(self, pop: asyncio.Future[Found], consumer: str, peer: str) -> None:
        with suppress(StoreError):
            self._give_back(consumer, peer, await pop)

    def _give_back(self, consumer: str, peer: str, found: Found) -> None:
        if found.messages:
            self._in_background(self._return(consumer, peer, found))

    async def _return(self, consumer: str, peer: str, found: Found) -> None:
        count = sum(len(messages) for _, messages in found.messages)
        try:
            count -= await self._store.run(ops.give_back(consumer, peer, found))
            why = "it receives their key no more"
        except StoreError as error:
            why = str(error)
        if count:
            _log.warning("%d messages for %r of %r are lost: %s", count, peer, consumer, why)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _element(self, record: pb.PublishRecord) -> bytes:
        key, payload = record.key, record.payload
        keys.check_key(key)
        most = self._options.max_message_bytes - len(key.encode()) - RECORD_BYTES
        if len(payload) > most:
            # A reply must have room for it.
            raise MessageTooLong(key, len(payload), most)
        now = now_s()
        return wire.encode(self._xids.next(now), unix_date(now), payload)

    def _records(self, found: Found) -> pb.RecordSet:
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


def _checked(request: pb.Subscription) -> tuple[str, str]:
    keys.check_key(request.key)
    keys.check_consumer(request.consumerID)
    return request.key, request.consumerID
