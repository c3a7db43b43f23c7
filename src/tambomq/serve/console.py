"""The console's component: opens what the console reads, once Redis is there.

The pages and the API are served by the HTTP component, which is started before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from tambomq.access.directory import NO_ACCESS, AccessOptions, UserDirectory
from tambomq.console.actions.actions import Actions
from tambomq.console.http.audit import RedisAuditLog
from tambomq.console.http.console import Console
from tambomq.console.http.options import ConsoleOptions
from tambomq.console.http.parts import ConsoleParts
from tambomq.console.http.stored_messages import StoredMessages
from tambomq.console.model import PipelineStatus
from tambomq.console.read.reader import Reader
from tambomq.console.read.sampler import Sampler
from tambomq.kqueue.server import KqueueServer
from tambomq.rsmq.keys import NAMESPACE
from tambomq.runtime.coalesced import Coalesced
from tambomq.serve.broker_component import BrokerComponent, denial_metrics
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.exposure import is_loopback
from tambomq.serve.metrics.queues import QueuesComponent
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import HttpSettings
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint

# A page had better say that Redis is lost than wait for it.
_ANSWER_WITHIN_S: Final = 5.0

PIPELINE_EVERY_S: Final = 10.0
"""How old the state of the pipeline may be: reading it takes several round trips and files."""

PipelineReader = Callable[[str], PipelineStatus]
"""Returns the state of the pipeline, given the URL of Redis. It blocks."""


@dataclass(frozen=True, slots=True)
class ConsoleSources:
    """What the console shows besides Redis, as far as this process has it."""

    kqueue: BrokerComponent | None = None
    """The component of KqueueMsgQ, which is started before."""
    queues: QueuesComponent | None = None
    """Reads the queues for the metrics; the console shows the same samples."""
    sends_to_kqueue: bool = True
    """Whether it takes messages without TLS."""
    pipeline: PipelineReader | None = None
    rsmq_ns: str = NAMESPACE
    access: AccessOptions = NO_ACCESS
    """Where the users are that may use it."""


def make_console(settings: HttpSettings, access: AccessOptions = NO_ACCESS) -> Console | None:
    """Return the console that *settings* want; beyond loopback there is none without a token."""
    has_token = bool(settings.token or settings.viewer_token or access.is_on)
    if not settings.console or not (has_token or is_loopback(settings.host)):
        return None
    return Console(
        ConsoleOptions(
            host=settings.host,
            operator_token=settings.token,
            viewer_token=settings.viewer_token,
            has_users=access.is_on,
            read_only=settings.read_only,
            allowed_hosts=settings.allowed_host,
        )
    )


class ConsoleComponent:
    """Lets *console* read and change what is in *redis* and in *sources*."""

    name = "console"
    endpoints: Sequence[ServedEndpoint] = ()

    def __init__(
        self, console: Console, redis: StoreComponent, sources: ConsoleSources | None = None
    ) -> None:
        self._console, self._redis, self._sources = console, redis, sources or ConsoleSources()
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Let the console answer."""
        target = endpoint(self._redis.url).with_timeout(_ANSWER_WITHIN_S)
        store = AsyncStore(target, patience_s=0)
        self._opened.push_async_callback(store.close)
        sources = self._sources
        if sources.access.is_on:
            users = UserDirectory("The console", sources.access, store)
            self._opened.push_async_callback(users.stop)
            await users.start()
            self._console.access.users = users
        server = sources.kqueue.server if sources.kqueue else None
        kqueue = server if isinstance(server, KqueueServer) else None
        if sources.queues is not None:
            reader = sources.queues.reader
        else:
            reader = Reader(store, rsmq_ns=sources.rsmq_ns, brokers=kqueue)
        sampler = Sampler(reader)
        self._opened.push_async_callback(sampler.close)
        address = kqueue.address if kqueue and sources.sends_to_kqueue else None
        actions = Actions(store, reader.refs, rsmq_ns=sources.rsmq_ns, kqueue=address)
        self._opened.push_async_callback(actions.close)
        messages = StoredMessages(store, sources.rsmq_ns)
        audit = RedisAuditLog(store)
        self._console.open(
            ConsoleParts(reader, sampler, messages, actions, audit, self._pipeline())
        )
        # First of all: streams end before what they read from is closed.
        self._opened.push_async_callback(self._console.close)

    def _pipeline(self) -> Callable[[], Awaitable[PipelineStatus]] | None:
        """Return what reads the state of the pipeline in a thread, once for all viewers."""
        if (read := self._sources.pipeline) is None:
            return None
        url = self._redis.url
        return Coalesced(lambda: asyncio.to_thread(read, url), PIPELINE_EVERY_S).get

    async def watch(self) -> None:
        """Do nothing: the console reports by itself that Redis is lost."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Do nothing: Redis and HTTP are checked by their own components."""

    async def metrics(self) -> Sequence[Metric]:
        """Return the requests that were denied, by user and right."""
        users = self._console.access.users
        return denial_metrics(users.denials.list()) if users else ()

    async def stop(self) -> None:
        """End live updates, and disconnect."""
        await self._opened.aclose()
