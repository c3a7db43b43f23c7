"""`BacklogBounds`: which keys are full, and what becomes of messages that are published to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from tambomq.errors import LimitReached, TamboError
from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.gomq.ops import bounds as bounds_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.aio import AsyncStore

# Reading the size of a long queue takes Redis a millisecond or more: do so for at most a twentieth
# of the time, and add what this server has published since.
_READ_SHARE: Final = 20
# A full key may have room again at any time: refuse without asking for no longer than this.
_REFUSE_S: Final = 0.1
_MAX_KNOWN: Final = 10_000
_ELEMENT_BYTES: Final = 64


class BacklogBounds:
    """The bounds of main queues, for one server; slightly exceeded if many publish at once."""

    def __init__(self, store: AsyncStore, options: Options) -> None:
        """Take the bounds of *options*, and what to do at them."""
        self._store, self.max_messages = store, options.max_backlog
        self._max_bytes = options.max_backlog_bytes
        self._dead_letters = options.overflow == "dead-letter"
        self._full = set[str]()
        self._sizes: dict[str, tuple[int, float]] = {}
        """By key its bytes, and until when they need not be read again."""
        self._full_sizes: dict[str, tuple[int, float]] = {}
        """The same of keys that had no room for what was published to them."""
        self.overflowed = 0
        """Messages that became dead letters because their key was full."""

    def note(self, key: str, left: int) -> None:
        """Remember *key* if the *left* messages of its main queue are as many as it may have."""
        if left >= self.max_messages:
            self._full.add(key)

    async def refused(self, batches: Mapping[str, Sequence[bytes]]) -> dict[str, TamboError]:
        """Return the error for each key of *batches* whose main queue is full.

        Only keys that were full at their last dispatch are checked, unless there is a limit of
        bytes; the others cost nothing.
        """
        refused = await self._too_large(batches) if self._max_bytes else {}
        if not self._full or not (suspects := sorted(self._full.intersection(batches))):
            return refused
        lengths = await self._store.outcomes([message_ops.backlog(key) for key in suspects])
        for key, length in zip(suspects, lengths, strict=True):
            if isinstance(length, TamboError):
                refused[key] = length
            elif length >= self.max_messages:
                refused[key] = LimitReached(f"key {key!r}", self.max_messages, "waiting messages")
            else:
                self._full.discard(key)
        return refused

    async def diverted(
        self, batches: Mapping[str, Sequence[bytes]], key: str, refusal: TamboError
    ) -> dict[str, Sequence[bytes]]:
        """Return *batches* with a full *key* replaced by its dead letters; else raise *refusal*."""
        dead = keys.dead_letters(key) if self._dead_letters else None
        if dead is None or not isinstance(refusal, LimitReached):
            raise refusal
        elements = [*batches.get(dead, ()), *batches[key]]
        for full in (await self.refused({dead: elements})).values():
            raise full
        return {**{each: batches[each] for each in batches if each != key}, dead: elements}

    async def _too_large(self, batches: Mapping[str, Sequence[bytes]]) -> dict[str, TamboError]:
        """Return the error for each key of *batches* that would exceed the limit of bytes."""
        refused: dict[str, TamboError] = {
            key: self._refusal(key) for key in batches if self._is_full(key, batches[key])
        }
        rest = batches.keys() - refused.keys() if refused else batches
        unknown = [key for key in rest if not self._fits(key, batches[key])]
        if not unknown:
            return refused
        began = time.monotonic()
        sizes = await self._store.outcomes([bounds_ops.backlog_bytes(key) for key in unknown])
        now = time.monotonic()
        until = now + _READ_SHARE * (now - began)
        for known in (self._sizes, self._full_sizes):
            if len(known) > _MAX_KNOWN:
                known.clear()
        for key, size in zip(unknown, sizes, strict=True):
            if isinstance(size, TamboError):
                refused[key] = size
                continue
            if self._exceeds(size, batches[key]):
                self._full_sizes[key] = size, min(until, now + _REFUSE_S)
                refused[key] = self._refusal(key)
                continue
            self._full_sizes.pop(key, None)
            self._sizes[key] = size + _memory(batches[key]), until
        return refused

    def _refusal(self, key: str) -> LimitReached:
        return LimitReached(f"key {key!r}", self._max_bytes, "bytes of messages")

    def _is_full(self, key: str, elements: Sequence[bytes]) -> bool:
        """Whether there was no room for *elements* when *key* was read last, a moment ago."""
        size, until = self._full_sizes.get(key, (0, 0.0))
        return time.monotonic() < until and self._exceeds(size, elements)

    def _exceeds(self, size: int, elements: Sequence[bytes]) -> bool:
        return size + sum(map(len, elements)) > self._max_bytes

    def _fits(self, key: str, elements: Sequence[bytes]) -> bool:
        """Whether *elements* certainly fit; then they are counted from now on."""
        size, until = self._sizes.get(key, (0, 0.0))
        size += _memory(elements)
        if time.monotonic() >= until or size > self._max_bytes:
            return False
        self._sizes[key] = size, until
        return True


def _memory(elements: Sequence[bytes]) -> int:
    """Return at least the memory that *elements* take in a list, where allocations are rounded."""
    return sum(len(each) + _ELEMENT_BYTES for each in elements) * 5 // 4
