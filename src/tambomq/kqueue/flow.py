"""How messages reach their targets, and what becomes of those that cannot keep up.

A target is *full* while as many bytes wait for it as the server lets wait. What fits into a
buffer that is not full goes in whole, so a message may be longer than the bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from tambomq.kqueue.frames import OK, Run
from tambomq.kqueue.model import Counters

Slow: TypeAlias = Literal["disconnect", "drop", "block"]
"""What a slow consumer costs: its connection, its messages, or its producers' time."""


class End(Protocol):
    """One connection, as others see it."""

    full: bool
    write: Callable[[bytes | memoryview], None]

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Read on."""

    def cut(self) -> None:
        """Close it now, for being slow."""

    def cut_for_memory(self) -> None:
        """Close it now: all clients together hold too much."""

    def cut_for_time(self) -> None:
        """Close it now: its frame takes too long."""

    def is_paused(self) -> bool:
        """Whether the server has stopped reading."""

    def waiting_bytes(self) -> int:
        """Return how much waits to be written."""

    def close(self) -> None:
        """Write what waits for the client, then close."""

    def abort(self) -> None:
        """Close it now."""


Runs: TypeAlias = Sequence[Run[frozenset[End]]]


class Flow:
    """Hands messages on, by one policy for all."""

    def __init__(self, slow: Slow, counters: Counters) -> None:
        self._slow, self._counters = slow, counters
        self._blocks = slow == "block"
        self._waits: dict[End, set[End]] = {}
        """Whom a paused connection waits for."""
        self._holds: dict[End, set[End]] = {}
        """Whom a full connection keeps waiting."""
        self.look: Callable[[], None] | None = None
        """Called now and then, to see how much waits for all targets together."""
        self.look_every_bytes = 0
        self._look_at = self._replied_bytes = 0

    def deliver(self, sender: End, data: bytes, runs: Runs) -> None:
        """Write *runs*, cut from *data*, to their targets: one write for each."""
        one = len(runs) == 1
        for target, parcel in self._one(data, runs) if one else self._many(data, runs):
            if target.is_closing() or (target.full and not self._blocks):
                self._withhold(target, runs)
                continue
            target.write(parcel)
            if self._blocks and target.full:
                self._hold(sender, target)
        # No more can have come to wait since the last look than has been written since.
        if self._counters.delivered_bytes >= self._look_at:
            self._look()

    def reply(self, peer: End, count: int) -> None:
        """Write ``OK`` for *count* things; who does not read them is slow like any other."""
        if not count or peer.is_closing():
            return
        if peer.full and not self._blocks:
            if self._slow == "disconnect":
                self._cut(peer)
            return
        peer.write(OK * count)
        if peer.full and self._blocks:
            self._hold(peer, peer)
        self._replied_bytes += len(OK) * count
        if self._replied_bytes >= self.look_every_bytes:
            self._look()

    def free(self, target: End) -> None:
        """Let go on who waits for *target*: it is not full any more, or gone."""
        for sender in self._holds.pop(target, ()):
            waits = self._waits[sender]
            waits.discard(target)
            if not waits:
                del self._waits[sender]
                sender.resume()

    def forget(self, peer: End) -> None:
        """Let *peer* neither wait nor keep anybody waiting: it is gone."""
        for target in self._waits.pop(peer, ()):
            holds = self._holds[target]
            holds.discard(peer)
            if not holds:
                del self._holds[target]
        self.free(peer)

    def _look(self) -> None:
        self._look_at = self._counters.delivered_bytes + self.look_every_bytes
        self._replied_bytes = 0
        if self.look is not None:
            self.look()

    def _hold(self, sender: End, target: End) -> None:
        if sender not in self._waits:
            sender.pause()
        self._waits.setdefault(sender, set()).add(target)
        self._holds.setdefault(target, set()).add(sender)

    def _one(self, data: bytes, runs: Runs) -> Sequence[tuple[End, bytes | memoryview]]:
        """Return what goes to whom, where it is the same for all."""
        ((start, end, targets, count),) = runs
        reach, size = len(targets), end - start
        counters = self._counters
        counters.received += count
        counters.received_bytes += size
        counters.delivered += count * reach
        counters.delivered_bytes += size * reach
        if not reach:
            counters.unrouted += count
            return ()
        # A view keeps all of its data alive in the targets' buffers: a small one is copied.
        parcel = memoryview(data)[start:end] if 2 * size >= len(data) else data[start:end]
        return [(target, parcel) for target in targets]

    def _many(self, data: bytes, runs: Runs) -> Sequence[tuple[End, bytes | memoryview]]:
        """Return what goes to whom, joined for each."""
        received = delivered = delivered_bytes = unrouted = 0
        # Those who get every run get all of it as one: a thousand consumers of all queues and two
        # names in turn would else be a thousand pieces for each frame.
        sets = {id(targets): targets for _, _, targets, _ in runs}
        common = frozenset[End].intersection(*sets.values())
        others = {key: targets - common for key, targets in sets.items()} if common else sets
        pieces: defaultdict[End, list[bytes]] = defaultdict(list)
        for start, end, targets, count in runs:
            received += count
            if not targets:
                unrouted += count
                continue
            reach = len(targets)
            delivered += count * reach
            delivered_bytes += (end - start) * reach
            if rest := others[id(targets)]:
                piece = data[start:end]
                for target in rest:
                    pieces[target].append(piece)
        counters = self._counters
        counters.received += received
        counters.received_bytes += runs[-1][1] - runs[0][0]
        counters.delivered += delivered
        counters.delivered_bytes += delivered_bytes
        counters.unrouted += unrouted
        parcels = [(target, b"".join(parts)) for target, parts in pieces.items()]
        if common:
            whole = data[runs[0][0] : runs[-1][1]]
            parcels += [(target, whole) for target in common]
        return parcels

    def _withhold(self, target: End, runs: Runs) -> None:
        """Take back what was counted as delivered, and say why it was not."""
        missed = [(end - start, count) for start, end, to, count in runs if target in to]
        lost = sum(count for _, count in missed)
        self._counters.delivered -= lost
        self._counters.delivered_bytes -= sum(size for size, _ in missed)
        if target.is_closing():
            return
        if self._slow == "drop":
            self._counters.dropped += lost
        else:
            self._cut(target)

    def _cut(self, target: End) -> None:
        self._counters.disconnected += 1
        target.cut()
