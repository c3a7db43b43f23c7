"""Records of published and received messages, each known by its payload."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from tambomq.errors import BrokerUnavailable
from tambomq.gomq.async_client import AsyncGomqClient
from tests.servers import eventually_async

PAUSE_S = 0.01


class Published:
    """What one publisher has sent: numbers, from 0 on, under its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.confirmed: list[str] = []
        self.doubtful: set[str] = set()
        """No answer came: they may be there, once."""
        self._numbers = itertools.count()

    async def one(self, client: AsyncGomqClient, key: str) -> None:
        """Publish the next."""
        text = f"{self.name} {next(self._numbers)}"
        try:
            await client.publish(key, text)
        except BrokerUnavailable:
            self.doubtful.add(text)
        else:
            self.confirmed.append(text)

    async def until(self, over: Callable[[], bool], client: AsyncGomqClient, key: str) -> None:
        """Publish one after the other."""
        while not over():
            await self.one(client, key)

    async def at(self, addresses: Iterable[str], over: Callable[[], bool], key: str) -> None:
        """Publish at the first of *addresses*, and when that is gone at the next."""
        for address in addresses:
            async with AsyncGomqClient(address) as client:
                while not over():
                    doubtful = len(self.doubtful)
                    await self.one(client, key)
                    if len(self.doubtful) > doubtful:
                        break


async def each_confirms(published: Iterable[Published], more: int) -> None:
    """Return when each publisher has *more* messages confirmed than now."""
    goals = {account: len(account.confirmed) + more for account in published}
    await eventually_async(
        lambda: all(len(account.confirmed) >= goal for account, goal in goals.items()),
        within_s=30,
    )


class Received:
    """What one consumer has been handed, in that order."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts = list(texts)

    async def observe(self, client: AsyncGomqClient, consumer: str) -> None:
        """Observe, for ever; a server that is away is waited for."""
        while True:
            try:
                records = await client.observe(consumer)
            except BrokerUnavailable:
                records = []
            self.texts += [record.text for record in records]
            if not records:
                await asyncio.sleep(PAUSE_S)

    async def watch(self, client: AsyncGomqClient, consumer: str) -> None:
        """Watch, for ever; a server that is away is waited for."""
        while True:
            with suppress(BrokerUnavailable):
                async for record in client.watch(consumer):
                    self.texts.append(record.text)
            await asyncio.sleep(PAUSE_S)

    async def at(self, addresses: Iterable[str], peer: str, consumer: str) -> None:
        """Observe at the first of *addresses*, and when that is gone at the next, as one peer."""
        for address in addresses:
            async with AsyncGomqClient(address, peer=peer) as client:
                with suppress(BrokerUnavailable):
                    while True:
                        records = await client.observe(consumer)
                        self.texts += [record.text for record in records]
                        await asyncio.sleep(0 if records else PAUSE_S)

    async def has(self, texts: Iterable[str], *, within_s: float = 30) -> None:
        """Return when all *texts* are here."""
        wanted = set(texts)
        await eventually_async(lambda: len(self.texts) >= len(wanted), within_s=within_s)
        await eventually_async(lambda: not wanted - set(self.texts), within_s=within_s)

    @property
    def twice(self) -> set[str]:
        """What was handed out more than once."""
        return {text for text, times in Counter(self.texts).items() if times > 1}

    def is_in_order(self, published: Iterable[Published]) -> None:
        """Assert that the numbers of each publisher only grow.

        A message whose publish got no answer may come late, but not early, and moves no other.
        """
        may_be_late = {text for account in published for text in account.doubtful}
        highest: dict[str, int] = defaultdict(lambda: -1)
        for text in self.texts:
            name, number = text.rsplit(" ", 1)
            assert int(number) > highest[name] or text in may_be_late, (text, highest[name])
            highest[name] = max(highest[name], int(number))


async def all_arrive(published: Iterable[Published], received: Iterable[Received]) -> None:
    """Wait until every consumer has all confirmed messages, and none that was not published."""
    confirmed = {text for account in published for text in account.confirmed}
    doubtful = {text for account in published for text in account.doubtful}
    for account in received:
        await account.has(confirmed)
        assert set(account.texts) - confirmed <= doubtful


@asynccontextmanager
async def under_way(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines beside the block, at whose end their errors are raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
