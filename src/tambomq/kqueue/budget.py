"""The memory that all clients of a server may hold together, and who is disconnected beyond it.

Counted are the bytes of unfinished frames, the names that consumers are subscribed to, and what
waits for clients that do not read it. No I/O: sizes and times come in, clients come out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Below the limit by an eighth there is room for a while: not every byte is followed by a search.
_KEEP: Final = 7 / 8


class Unfinished(Generic[T]):
    """Frames that have begun and are not complete: one for each client, the oldest first."""

    def __init__(self) -> None:
        self.total = 0
        """Their bytes, as far as they have come."""
        self._frames: dict[T, tuple[int, float]] = {}

    def update(self, client: T, size: int, now: float, *, is_new: bool) -> None:
        """Note that *size* bytes have come of a frame, which began *now* if it is a new one.

        No bytes mean that no frame is unfinished.
        """
        before = self._frames.get(client)
        if before is not None:
            self.total -= before[0]
            if not is_new and size:
                now = before[1]
            else:
                del self._frames[client]
        if size:
            self._frames[client] = (size, now)
            self.total += size

    def forget(self, client: T) -> None:
        """Count nothing of *client* any more."""
        self.update(client, 0, 0.0, is_new=True)

    def restart(self, client: T, now: float) -> None:
        """Count the time of the frame of *client* from *now* on: the server did not read it."""
        if client in self._frames:
            self.update(client, self._frames[client][0], now, is_new=True)

    def began_by(self, time: float) -> list[T]:
        """Return those whose frame began at *time* or before."""
        found = []
        for client, (_, began) in self._frames.items():
            if began > time:
                break
            found.append(client)
        return found

    @property
    def oldest(self) -> float | None:
        """When the oldest frame began."""
        return next((began for _, began in self._frames.values()), None)

    def victims(self) -> Iterator[tuple[T, int]]:
        """Yield whom to disconnect first, and what that frees: the oldest of the larger half.

        Who holds less than the average is small, and comes last: it would free little.
        """
        average = self.total / max(len(self._frames), 1)
        large = [(client, size) for client, (size, _) in self._frames.items() if size >= average]
        yield from large
        chosen = {client for client, _ in large}
        for client, (size, _) in self._frames.items():
            if client not in chosen:
                yield client, size


def largest(held: Mapping[T, int]) -> Iterator[tuple[T, int]]:
    """Yield clients and what each holds, the largest first."""
    for client in sorted(held, key=held.__getitem__, reverse=True):
        yield client, held[client]


def largest_of_shared(held: Mapping[T, int], groups: Mapping[T, object]) -> Iterator[tuple[T, int]]:
    """Yield clients, the largest first, and what goes with each.

    Clients of one group hold the same messages: a group holds as much as its largest member, and
    without that one as much as the next.
    """
    members: dict[object, list[T]] = {}
    for client, _ in largest(held):
        members.setdefault(groups[client], []).append(client)
    heap = [(-held[each[0]], index, 0) for index, each in enumerate(members.values())]
    lists = list(members.values())
    heapq.heapify(heap)
    while heap:
        size, index, at = heapq.heappop(heap)
        after = held[lists[index][at + 1]] if at + 1 < len(lists[index]) else 0
        yield lists[index][at], -size - after
        if after:
            heapq.heappush(heap, (-after, index, at + 1))


def shared_total(held: Mapping[T, int], groups: Mapping[T, object]) -> int:
    """Return what is held when the messages of a group are counted once."""
    most: dict[object, int] = {}
    for client, size in held.items():
        most[groups[client]] = max(size, most.get(groups[client], 0))
    return sum(most.values())


def choose(totals: list[int], victims: Sequence[Iterator[tuple[T, int]]], limit: int) -> list[T]:
    """Return whom to disconnect, in this order, until less than *limit* is held.

    Each kind of memory has its total and its own order; the next client is the next one of the
    kind of which most is held. Nobody if *limit* is not exceeded.
    """
    chosen: dict[T, None] = {}
    if sum(totals) <= limit:
        return []
    totals = list(totals)
    while sum(totals) > limit * _KEEP:
        kind = max(range(len(totals)), key=totals.__getitem__)
        client, size = next(victims[kind], (None, 0))
        if client is None:
            totals[kind] = 0
            continue
        totals[kind] -= size
        chosen[client] = None
    return list(chosen)
