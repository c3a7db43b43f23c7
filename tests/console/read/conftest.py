"""Readers on an empty server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tambomq.console.model import Overview, QueueRow
from tambomq.console.read.reader import Reader
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome, Script
from tests.servers import Server


class CountingStore(AsyncStore):
    """A store that counts its calls by the name of their command or script."""

    def __init__(self, url: str) -> None:
        super().__init__(url, patience_s=0)
        self.calls: dict[str, int] = {}

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Count, and run."""
        for call in calls:
            verb = call.verb
            name = verb.name if isinstance(verb, Script) else str(call.parts[0])
            self.calls[name] = self.calls.get(name, 0) + 1
        return await super().outcomes(calls)


@pytest.fixture
async def counting_store(server: Server) -> AsyncIterator[CountingStore]:
    """A store on an empty server that gives up at once."""
    store = CountingStore(server.url)
    yield store
    await store.close()


@pytest.fixture
def reader(counting_store: CountingStore) -> Reader:
    """A reader that refreshes whenever it is asked."""
    return Reader(counting_store, max_age_s=0)


def rows(overview: Overview) -> dict[str, QueueRow]:
    """The rows of an overview by queue."""
    return {row.queue: row for row in overview.queues}
