"""Which queues the servers of this process record, and the numbers of all journals there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from tambomq.errors import DoorFailed, SettingsError, StoreUnavailable
from tambomq.journal import ops
from tambomq.journal.keys import PROTOCOLS, Keys
from tambomq.journal.ops import State
from tambomq.journal.recording import Bounds, Recording
from tambomq.serve.door import Endpoint, Metric
from tambomq.serve.health import Coalesced
from tambomq.serve.store import StoreDoor
from tambomq.settings import Settings
from tambomq.store.aio import AsyncStore

SAMPLE_EVERY_S: Final = 5.0
PAGES_A_LOOK: Final = 100
"""A look goes through a hundred thousand keys; the next one goes on where it ended."""
MOST_JOURNALS: Final = 1000
"""Numbers are told of the first so many, by name."""
_CHUNK: Final = 100
_CLIENTS: Final = {
    "rsmq": 'Rsmq(url, journal=("{}",))',
    "chasqui": 'Queue("{}", journal=True)',
}
"""Who writes the journal where clients speak with Redis itself."""


def recordings(settings: Settings) -> dict[str, Recording]:
    """Return which queues of GOMQ and KqueueMsgQ have a journal. Raises `SettingsError`."""
    chosen: dict[str, list[str]] = {"gomq": [], "kqueue": []}
    served = {"gomq": settings.gomq.enabled, "kqueue": settings.kqueue.enabled}
    for each in settings.journal.patterns:
        protocol, _, queue = each.partition(":")
        if protocol not in PROTOCOLS or not queue:
            raise SettingsError(f"--journal {each!r}: expected one such as kqueue:* or gomq:orders")
        if protocol in _CLIENTS:
            client = _CLIENTS[protocol].format(queue)
            raise SettingsError(
                f"--journal {each!r}: clients of {protocol} write its journals themselves: {client}"
            )
        if not served[protocol]:
            raise SettingsError(f"--journal {each!r}: {protocol} is not served here")
        chosen[protocol].append(queue)
    bounds = Bounds(settings.journal.max_entries, settings.journal.max_bytes)
    return {protocol: Recording(protocol, found, bounds) for protocol, found in chosen.items()}


class JournalDoor:
    """The journals on the server of *redis*, whoever writes them: this one only counts."""

    name = "journal"
    endpoints: Sequence[Endpoint] = ()

    def __init__(self, redis: StoreDoor) -> None:
        self._redis = redis
        self._store: AsyncStore | None = None
        self._cursor, self._seen = b"0", dict[str, Keys]()
        self._known: list[Keys] = []
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

    async def start(self) -> None:
        """Remember where the server is."""
        self._store = AsyncStore(self._redis.url, patience_s=0)

    async def watch(self) -> None:
        """Do nothing: there is nothing to keep open."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Do nothing: whether the server answers is seen by its own door."""

    async def metrics(self) -> Sequence[Metric]:
        """Return what is in the journals, as it was a few seconds ago at most."""
        return await self._sampled.get()

    async def stop(self) -> None:
        """Hang up."""
        if self._store is not None:
            await self._store.close()

    async def _sample(self) -> Sequence[Metric]:
        if self._store is None:
            raise DoorFailed(self.name, "it is not open")
        await self._look(self._store)
        told = [Metric("journals", "Journals there are.", len(self._known))]
        for first in range(0, min(len(self._known), MOST_JOURNALS), _CHUNK):
            chunk = self._known[first : first + _CHUNK]
            found = await self._store.outcomes([ops.state(keys) for keys in chunk])
            for keys, state in zip(chunk, found, strict=True):
                if isinstance(state, State):
                    told += _numbers(keys, state)
                # One that was deleted meanwhile, or is damaged, is left out.
                elif isinstance(state, StoreUnavailable):
                    raise state
        return told

    async def _look(self, store: AsyncStore) -> None:
        """Go on looking for journals; what was found counts when all keys were looked at."""
        for _ in range(PAGES_A_LOOK):
            self._cursor, found = await store.run(ops.journals(self._cursor))
            self._seen |= {keys.journal: keys for keys in found}
            if self._cursor == b"0":
                self._known = [self._seen[key] for key in sorted(self._seen)]
                self._seen = {}
                return


def _numbers(keys: Keys, found: State) -> Iterator[Metric]:
    labels = (("protocol", keys.protocol), ("queue", keys.queue))
    yield Metric("entries", "Entries of a journal.", found.entries, labels=labels)
    yield Metric("bytes", "Their size, as the bounds count it.", found.bytes, labels=labels)
    about = "Messages that were not stored, since the journal was full."
    yield Metric("refused", about, found.refused, "counter", labels)
    about = "Events that were not recorded, since the journal was full or away."
    yield Metric("dropped", about, found.dropped, "counter", labels)
    for reader in found.readers:
        whose = (*labels, ("reader", reader.name))
        about = "What was recorded since a reader's last commit."
        yield Metric("lag_bytes", about, reader.lag_bytes, labels=whose)
        about = "How much later the last entry is than a reader's last commit."
        yield Metric("lag_seconds", about, reader.lag_ms / 1000, labels=whose)
