"""The journal component: the metrics of all journals, and which queues this process records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from tambomq.errors import ComponentFailed, SettingsError, StoreUnavailable
from tambomq.journal import ops
from tambomq.journal.keys import PROTOCOLS, JournalKeys
from tambomq.journal.ops import State
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.runtime.coalesced import Coalesced
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import Settings
from tambomq.store.aio import AsyncStore

SAMPLE_EVERY_S: Final = 5.0
PAGES_PER_SCAN: Final = 100
"""A scan visits a hundred thousand keys; the next one continues where it ended."""
MAX_JOURNALS: Final = 1000
"""Metrics cover at most this many journals, the first by name."""
_CHUNK: Final = 100
_CLIENTS: Final = {
    "rsmq": 'Rsmq(url, journal=("{}",))',
    "chasqui": 'Queue("{}", journal=True)',
}
"""The clients that write the journal, where they talk to Redis directly."""


def journal_policies(settings: Settings) -> dict[str, JournalPolicy]:
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
    bounds = JournalBounds(settings.journal.max_entries, settings.journal.max_bytes)
    return {protocol: JournalPolicy(protocol, found, bounds) for protocol, found in chosen.items()}


class JournalComponent:
    """Reports the metrics of all journals on the server of *redis*."""

    name = "journal"
    endpoints: Sequence[ServedEndpoint] = ()

    def __init__(self, redis: StoreComponent) -> None:
        self._redis = redis
        self._store: AsyncStore | None = None
        self._cursor, self._seen = b"0", dict[str, JournalKeys]()
        self._known: list[JournalKeys] = []
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

    async def start(self) -> None:
        """Store the URL; the first call connects."""
        self._store = AsyncStore(self._redis.url, patience_s=0)

    async def watch(self) -> None:
        """Do nothing: there is nothing to keep running."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Do nothing: the Redis component checks the server."""

    async def metrics(self) -> Sequence[Metric]:
        """Return the state of the journals, at most `SAMPLE_EVERY_S` old."""
        return await self._sampled.get()

    async def stop(self) -> None:
        """Disconnect."""
        if self._store is not None:
            await self._store.close()

    async def _sample(self) -> Sequence[Metric]:
        if self._store is None:
            raise ComponentFailed(self.name, "it is not started")
        await self._scan(self._store)
        metrics = [Metric("journals", "Number of journals.", len(self._known))]
        for first in range(0, min(len(self._known), MAX_JOURNALS), _CHUNK):
            chunk = self._known[first : first + _CHUNK]
            found = await self._store.outcomes([ops.state(keys) for keys in chunk])
            for keys, state in zip(chunk, found, strict=True):
                if isinstance(state, State):
                    metrics += _numbers(keys, state)
                # Skip journals that were deleted meanwhile or are damaged.
                elif isinstance(state, StoreUnavailable):
                    raise state
        return metrics

    async def _scan(self, store: AsyncStore) -> None:
        """Continue the scan for journals; its result is used once all keys were visited."""
        for _ in range(PAGES_PER_SCAN):
            self._cursor, found = await store.run(ops.journals(self._cursor))
            self._seen |= {keys.journal: keys for keys in found}
            if self._cursor == b"0":
                self._known = [self._seen[key] for key in sorted(self._seen)]
                self._seen = {}
                return


def _numbers(keys: JournalKeys, found: State) -> Iterator[Metric]:
    labels = (("protocol", keys.protocol), ("queue", keys.queue))
    yield Metric("entries", "Entries of a journal.", found.entries, labels=labels)
    yield Metric("bytes", "Their size, as the bounds count it.", found.bytes, labels=labels)
    about = "Messages refused because the journal was full."
    yield Metric("refused", about, found.refused, "counter", labels)
    about = "Events not recorded because the journal was full or unreachable."
    yield Metric("dropped", about, found.dropped, "counter", labels)
    for reader in found.readers:
        reader_labels = (*labels, ("reader", reader.name))
        about = "Size of the entries after a reader's last commit."
        yield Metric("lag_bytes", about, reader.lag_bytes, labels=reader_labels)
        about = "Time between a reader's last commit and the last entry."
        yield Metric("lag_seconds", about, reader.lag_ms / 1000, labels=reader_labels)
