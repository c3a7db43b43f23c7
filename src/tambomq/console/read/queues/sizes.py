"""How many bytes queues take in Redis: estimates by MEMORY USAGE, of some queues at a refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tambomq.chasqui.bulk import sample as chasqui_sample
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.console.model import QueueRef
from tambomq.console.read.queues.gomq import GomqQueues
from tambomq.console.read.queues.turns import Turns
from tambomq.errors import StoreUnavailable
from tambomq.gomq.bulk import sample as gomq_sample
from tambomq.rsmq.bulk import sample as rsmq_sample
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

QUEUES: Final = 20
"""Queues of one refresh whose size is estimated: less than a millisecond of Redis's time."""
SAMPLES: Final = 5
"""Elements of a key that Redis weighs; it takes the others to be alike."""


class QueueSizes:
    """The last known size of each queue."""

    def __init__(self, store: AsyncStore, rsmq_keys: RsmqKeys, gomq: GomqQueues) -> None:
        self._store, self._rsmq_keys, self._gomq = store, rsmq_keys, gomq
        self._turns = Turns(QUEUES)
        self._bytes: dict[QueueRef, int] = {}

    async def look(self, refs: Sequence[QueueRef]) -> None:
        """Weigh some of *refs* and forget all others' sizes. Raises `StoreUnavailable`."""
        stored = [ref for ref in refs if ref.protocol != "kqueue"]
        known, self._bytes = self._bytes, {}
        for ref in stored:
            if ref in known:
                self._bytes[ref] = known[ref]
        unknown = [ref for ref in stored if ref not in known]
        chosen = self._turns.take(unknown or stored)
        keys = [(ref, key) for ref in chosen for key in self._keys_of(ref)]
        weighed = await self._store.outcomes([_usage(key) for _, key in keys])
        sizes = dict.fromkeys(chosen, 0)
        for (ref, _), size in zip(keys, weighed, strict=True):
            if isinstance(size, StoreUnavailable):
                raise size
            # A server may forbid MEMORY: then sizes are not known.
            if not isinstance(size, int):
                sizes.pop(ref, None)
            elif ref in sizes:
                sizes[ref] += size
        self._bytes |= sizes

    def of(self, ref: QueueRef) -> int | None:
        """Return the last known size of a queue."""
        return self._bytes.get(ref)

    def _keys_of(self, ref: QueueRef) -> tuple[str, ...]:
        match ref.protocol:
            case "rsmq":
                return rsmq_sample.sized_keys(self._rsmq_keys, ref.name)
            case "chasqui":
                return chasqui_sample.sized_keys(ChasquiKeys(ref.name))
            case _:
                return gomq_sample.sized_keys(ref.name, self._gomq.receivers(ref.name).rows)


def _usage(key: str) -> Call[int]:
    verb = ("MEMORY", "USAGE")
    return Call(verb, (key,), ("SAMPLES", SAMPLES), lambda size: size or 0, repeatable=True)
