"""Samples of RSMQ queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.queues.turns import Turns
from tambomq.errors import StoreUnavailable
from tambomq.rsmq.bulk import sample as ops
from tambomq.rsmq.bulk.sample import MessageSample
from tambomq.rsmq.keys import Keys
from tambomq.store.aio import AsyncStore

CHUNK: Final = 200
"""Queues of one round trip: others' calls get their turn in between."""
SOON_MS: Final = 20
"""What becomes visible so soon is: it may have been sent after the clock was read."""
HIDDEN_LOOKS: Final = 20
"""Queues of one refresh whose hidden messages are looked at."""


class RsmqQueues:
    """Samples the RSMQ queues of one namespace."""

    def __init__(self, store: AsyncStore, keys: Keys) -> None:
        self._store, self._keys = store, keys
        self._turns = Turns(HIDDEN_LOOKS)
        self._received_share: dict[str, float] = {}
        """The share of a queue's hidden messages that were received; the others are delayed."""
        self._died: dict[str, tuple[int, int]] = {}
        """How many dead letters a queue had last, and how many came so far."""

    async def sample(self, names: Sequence[str], now_ms: int) -> dict[str, QueueSample]:
        """Return the numbers of the queues that exist. Raises `StoreUnavailable`."""
        found: dict[str, MessageSample] = {}
        soon_ms = now_ms + SOON_MS
        for first in range(0, len(names), CHUNK):
            chunk = names[first : first + CHUNK]
            calls = [call for name in chunk for call in ops.sample(self._keys, name, soon_ms)]
            outcomes = await self._store.outcomes(calls)
            for place, name in enumerate(chunk):
                read = ops.read(outcomes[place * ops.CALLS : (place + 1) * ops.CALLS])
                if read.exists:
                    found[name] = read
        await self._look_at_hidden([name for name, each in found.items() if each.hidden], soon_ms)
        self._died = {name: self._deaths(name, each.dead) for name, each in found.items()}
        return {name: self._sample(name, each, now_ms) for name, each in found.items()}

    async def _look_at_hidden(self, names: Sequence[str], now_ms: int) -> None:
        self._received_share = {
            name: share for name, share in self._received_share.items() if name in set(names)
        }
        unknown = [name for name in names if name not in self._received_share]
        chosen = self._turns.take(unknown or names)
        calls = [ops.hidden(self._keys, name, now_ms) for name in chosen]
        for name, seen in zip(chosen, await self._store.outcomes(calls), strict=True):
            if isinstance(seen, StoreUnavailable):
                raise seen
            if isinstance(seen, tuple) and seen[0]:
                self._received_share[name] = seen[1] / seen[0]

    def _deaths(self, name: str, dead: int) -> tuple[int, int]:
        before, total = self._died.get(name, (dead, dead))
        return dead, total + max(0, dead - before)

    def _sample(self, name: str, found: MessageSample, now_ms: int) -> QueueSample:
        in_flight = round(found.hidden * self._received_share.get(name, 1.0))
        visible = max(0, found.depth - found.hidden)
        waits = found.first_ms is not None and visible > 0
        return QueueSample(
            depth=found.depth,
            visible=visible,
            in_flight=in_flight,
            delayed=found.hidden - in_flight,
            dead=found.dead,
            oldest_s=max(0, now_ms - found.first_ms) / 1000 if waits and found.first_ms else None,
            entered=found.sent,
            left=max(0, found.sent - found.depth),
            received=found.received,
            died=self._died[name][1],
            damaged=found.damaged,
        )
