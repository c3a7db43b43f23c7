"""The memory budget of all clients together, and the choice of clients to disconnect.

Counted are incomplete frames, subscriptions, and write buffers. No I/O: sizes and times are
passed in, clients are returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Free an eighth more than necessary, so that the next byte does not start another search.
_LOW_WATERMARK: Final = 7 / 8


class PartialFrames(Generic[T]):
    """Incomplete frames, at most one per client, the oldest first."""

    def __init__(self) -> None:
        self.total = 0
        """Bytes received of all of them."""
        self._frames: dict[T, tuple[int, float]] = {}

    def update(self, client: T, size: int, now: float, *, is_new: bool) -> None:
        """Record that *client* has sent *size* bytes of a frame, which began *now* if *is_new*.

        A *size* of 0 means that the client has no incomplete frame.
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

    def remove(self, client: T) -> None:
        """Remove the frame of *client*."""
        self.update(client, 0, 0.0, is_new=True)

    def restart(self, client: T, now: float) -> None:
        """Restart the time of the frame of *client*: the server had paused reading."""
        if client in self._frames:
            self.update(client, self._frames[client][0], now, is_new=True)

    def started_by(self, time: float) -> list[T]:
        """Return the clients whose frame began at *time* or before."""
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
        """Yield clients in the order of disconnection, and the bytes that each frees.

        Frames of at least average size come first, the oldest before others; smaller ones free
        little and come last.
        """
        average = self.total / max(len(self._frames), 1)
        large = [(client, size) for client, (size, _) in self._frames.items() if size >= average]
        yield from large
        chosen = {client for client, _ in large}
        for client, (size, _) in self._frames.items():
            if client not in chosen:
                yield client, size


def largest(held: Mapping[T, int]) -> Iterator[tuple[T, int]]:
    """Yield clients and the bytes that each holds, the largest first."""
    for client in sorted(held, key=held.__getitem__, reverse=True):
        yield client, held[client]


def largest_of_shared(held: Mapping[T, int], groups: Mapping[T, object]) -> Iterator[tuple[T, int]]:
    """Yield clients, the largest first, and the bytes that disconnecting each frees.

    Clients of one group share the memory of their messages: a group holds as much as its
    largest member, and without that one as much as the next.
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
    """Return the bytes held when the messages of a group are counted once."""
    largest_members: dict[object, int] = {}
    for client, size in held.items():
        group = groups[client]
        largest_members[group] = max(size, largest_members.get(group, 0))
    return sum(largest_members.values())


def choose_victims(
    totals: list[int], victims: Sequence[Iterator[tuple[T, int]]], limit: int
) -> list[T]:
    """Return the clients to disconnect, in order, until less than *limit* is held.

    Each kind of memory has a total and an order of its own; the next client is taken from the
    kind with the largest total. Empty if *limit* is not exceeded.
    """
    chosen: dict[T, None] = {}
    if sum(totals) <= limit:
        return []
    totals = list(totals)
    while sum(totals) > limit * _LOW_WATERMARK:
        kind = max(range(len(totals)), key=totals.__getitem__)
        client, size = next(victims[kind], (None, 0))
        if client is None:
            totals[kind] = 0
            continue
        totals[kind] -= size
        chosen[client] = None
    return list(chosen)
