"""Which queues there are, found by scans in bounded pages and kept between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from tambomq.chasqui.bulk import sample as chasqui_sample
from tambomq.console.model import QueueRef
from tambomq.errors import WrongType
from tambomq.gomq.bulk import scan as gomq_scan
from tambomq.gomq.keys import is_key
from tambomq.rsmq.bulk import scan as rsmq_scan
from tambomq.rsmq.keys import Keys, is_queue
from tambomq.runtime.coalesced import Coalesced
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Plan, results
from tambomq.store.paced_plan import PacedPlan

SCAN_EVERY_S: Final = 10.0
"""A complete scan is not begun anew before this."""
SHORT_PAGES: Final = 8
SHORT_EVERY_S: Final = 1.5
"""A scan that took no more than `SHORT_PAGES` is begun anew after this: new queues show at once."""
PAGES: Final = 20
"""Pages of about 1,000 keys that one refresh scans: some milliseconds of Redis's time."""
FIRST_PAGES: Final = 500
"""The first scan goes further, so that the first page shows all queues."""
FIRST_WITHIN_S: Final = 0.5

PageCall = Callable[[bytes], Call[tuple[bytes, Any]]]
RefsOf = Callable[[Any], Iterator[QueueRef]]


class QueueDirectory:
    """The queues of all protocols in one Redis; on a cluster, those that its first node knows.

    A queue that is found is known at once. One that a complete scan has not found is forgotten.
    """

    def __init__(self, store: AsyncStore, rsmq_keys: Keys) -> None:
        self._store, self._rsmq_keys = store, rsmq_keys
        self._known: set[QueueRef] = set()
        self._found: set[QueueRef] = set()
        self._scan = PacedPlan(self._look, PAGES)
        # Pages and the refresh ask at the same time, and a scan has one caller.
        self._refs = Coalesced(self._looked_up, max_age_s=0)
        self._complete_at = float("-inf")
        self._pages = 0
        self._is_first = True

    async def refs(self) -> list[QueueRef]:
        """Return the queues that are known now, after looking for more. Raises `StoreError`."""
        return list(await self._refs.get())

    async def _looked_up(self) -> list[QueueRef]:
        every_s = SHORT_EVERY_S if self._pages <= SHORT_PAGES else SCAN_EVERY_S
        if time.monotonic() - self._complete_at >= every_s:
            await self._go_on()
            until = time.monotonic() + FIRST_WITHIN_S
            rounds = FIRST_PAGES // PAGES
            while self._is_first and rounds and time.monotonic() < until:
                await self._go_on()
                rounds -= 1
            self._is_first = False
        return sorted(self._known)

    async def _go_on(self) -> None:
        found = await self._scan.go_on(self._store)
        self._known |= self._found
        if found is not None:
            self._known, self._complete_at, self._is_first = set(found), time.monotonic(), False

    def _look(self) -> Plan[set[QueueRef]]:
        """Scan everything once. What is found so far is in `_found`."""
        self._found = found = set[QueueRef]()
        pages = 0
        rsmq = partial(rsmq_scan.names, self._rsmq_keys)
        pages += yield from _scan_all(rsmq, _rsmq_refs, found)
        pages += yield from _scan_all(gomq_scan.subscribed, _gomq_refs, found)
        pages += yield from _scan_all(gomq_scan.queues, _gomq_refs, found)
        pages += yield from _scan_all(chasqui_sample.names, _chasqui_refs, found)
        self._pages = pages
        return found


def _scan_all(page: PageCall, refs_of: RefsOf, found: set[QueueRef]) -> Plan[int]:
    """Add what all pages have to *found*; return how many pages there were."""
    cursor, pages = b"0", 0
    while True:
        outcome = (yield (page(cursor),))[0]
        pages += 1
        # A damaged set of names hides the queues of its own protocol and no others.
        if isinstance(outcome, WrongType):
            return pages
        cursor, names = results([outcome])[0]
        found.update(refs_of(names))
        if cursor == b"0":
            return pages


def _rsmq_refs(names: Iterable[bytes]) -> Iterator[QueueRef]:
    """Yield queues; other clients may have created some whose names ours refuse."""
    for name in names:
        text = name.decode("utf-8", "replace")
        if is_queue(text):
            yield QueueRef("rsmq", text)


def _gomq_refs(names: Iterable[str]) -> Iterator[QueueRef]:
    return (QueueRef("gomq", name) for name in names if is_key(name))


def _chasqui_refs(names: Iterable[str]) -> Iterator[QueueRef]:
    return (QueueRef("chasqui", name) for name in names)
