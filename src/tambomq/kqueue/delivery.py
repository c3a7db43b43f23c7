"""Delivery of messages to subscribers, and the policies for slow consumers.

A target is *full* while its write buffer has reached `max_buffer_bytes`. A write to a buffer that
is not full is accepted whole, so a message may be longer than that bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from tambomq.kqueue.frames import OK, Run
from tambomq.kqueue.model import ConnectionInfo, Counters

SlowConsumerPolicy: TypeAlias = Literal["disconnect", "drop", "block"]
"""For a slow consumer: disconnect it, drop its messages, or block the producers."""


class PeerConnection(Protocol):
    """A client's connection, as the broker and the delivery use it."""

    full: bool
    write: Callable[[bytes | memoryview], None]

    def is_closing(self) -> bool:
        """Whether the connection is closing: writes are lost."""

    def pause(self) -> None:
        """Stop reading."""

    def resume(self) -> None:
        """Resume reading."""

    def disconnect_slow(self) -> None:
        """Close now: the client reads too slowly."""

    def disconnect_for_memory(self) -> None:
        """Close now: all clients together hold too much memory."""

    def disconnect_for_time(self) -> None:
        """Close now: a frame was not complete in time."""

    def is_paused(self) -> bool:
        """Whether the server has paused reading."""

    def buffered_bytes(self) -> int:
        """Return the size of the write buffer."""

    def describe(self) -> ConnectionInfo | None:
        """Return what the connection is; `None` if it was not admitted, or is closing."""

    def close(self) -> None:
        """Write the buffered bytes, then close."""

    def abort(self) -> None:
        """Close now."""


Runs: TypeAlias = Sequence[Run[frozenset[PeerConnection]]]


class Fanout:
    """Writes each message to its targets, with one policy for slow consumers."""

    def __init__(self, slow: SlowConsumerPolicy, counters: Counters) -> None:
        self._slow, self._counters = slow, counters
        self._blocks = slow == "block"
        self._blocked_by: dict[PeerConnection, set[PeerConnection]] = {}
        """The full targets that a paused sender waits for."""
        self._blocking: dict[PeerConnection, set[PeerConnection]] = {}
        """The paused senders that wait for a full target."""
        self.check_memory: Callable[[], None] | None = None
        """Called after every `check_every_bytes` written, to limit the memory of all buffers."""
        self.check_every_bytes = 0
        self._check_at = self._replied_bytes = 0

    def deliver(self, sender: PeerConnection, data: bytes, runs: Runs) -> None:
        """Write *runs* of *data* to their targets, with one write per target."""
        one = len(runs) == 1
        writes = self._writes_of_one_run(data, runs) if one else self._writes_of_runs(data, runs)
        for target, chunk in writes:
            if target.is_closing() or (target.full and not self._blocks):
                self._skip(target, runs)
                continue
            target.write(chunk)
            if self._blocks and target.full:
                self._pause_sender(sender, target)
        # The buffers cannot have grown by more than what was written since the last check.
        if self._counters.delivered_bytes >= self._check_at:
            self._check_memory()

    def reply(self, peer: PeerConnection, count: int) -> None:
        """Write *count* times ``OK``; a client that does not read them is a slow consumer."""
        if not count or peer.is_closing():
            return
        if peer.full and not self._blocks:
            if self._slow == "disconnect":
                self._disconnect_slow(peer)
            return
        peer.write(OK * count)
        if peer.full and self._blocks:
            self._pause_sender(peer, peer)
        self._replied_bytes += len(OK) * count
        if self._replied_bytes >= self.check_every_bytes:
            self._check_memory()

    def unblock(self, target: PeerConnection) -> None:
        """Resume the senders that wait for *target*: it is no longer full, or has left."""
        for sender in self._blocking.pop(target, ()):
            targets = self._blocked_by[sender]
            targets.discard(target)
            if not targets:
                del self._blocked_by[sender]
                sender.resume()

    def remove(self, peer: PeerConnection) -> None:
        """Remove *peer*, as a sender and as a target."""
        for target in self._blocked_by.pop(peer, ()):
            senders = self._blocking[target]
            senders.discard(peer)
            if not senders:
                del self._blocking[target]
        self.unblock(peer)

    def _check_memory(self) -> None:
        self._check_at = self._counters.delivered_bytes + self.check_every_bytes
        self._replied_bytes = 0
        if self.check_memory is not None:
            self.check_memory()

    def _pause_sender(self, sender: PeerConnection, target: PeerConnection) -> None:
        if sender not in self._blocked_by:
            sender.pause()
        self._blocked_by.setdefault(sender, set()).add(target)
        self._blocking.setdefault(target, set()).add(sender)

    def _writes_of_one_run(
        self, data: bytes, runs: Runs
    ) -> Sequence[tuple[PeerConnection, bytes | memoryview]]:
        """Return the write for each target of the only run."""
        ((start, end, targets, count),) = runs
        copies, size = len(targets), end - start
        counters = self._counters
        counters.received += count
        counters.received_bytes += size
        counters.delivered += count * copies
        counters.delivered_bytes += size * copies
        if not copies:
            counters.unrouted += count
            return ()
        # A view in a write buffer keeps all of *data* in memory: copy small slices.
        chunk = memoryview(data)[start:end] if 2 * size >= len(data) else data[start:end]
        return [(target, chunk) for target in targets]

    def _writes_of_runs(
        self, data: bytes, runs: Runs
    ) -> Sequence[tuple[PeerConnection, bytes | memoryview]]:
        """Return the joined write for each target."""
        received = delivered = delivered_bytes = unrouted = 0
        # Targets of every run get one slice. Otherwise two alternating names and a thousand
        # wildcard consumers would make a thousand pieces per frame.
        sets = {id(targets): targets for _, _, targets, _ in runs}
        common = frozenset[PeerConnection].intersection(*sets.values())
        others = {key: targets - common for key, targets in sets.items()} if common else sets
        pieces: defaultdict[PeerConnection, list[bytes]] = defaultdict(list)
        for start, end, targets, count in runs:
            received += count
            if not targets:
                unrouted += count
                continue
            copies = len(targets)
            delivered += count * copies
            delivered_bytes += (end - start) * copies
            if remaining := others[id(targets)]:
                piece = data[start:end]
                for target in remaining:
                    pieces[target].append(piece)
        counters = self._counters
        counters.received += received
        counters.received_bytes += runs[-1][1] - runs[0][0]
        counters.delivered += delivered
        counters.delivered_bytes += delivered_bytes
        counters.unrouted += unrouted
        writes = [(target, b"".join(parts)) for target, parts in pieces.items()]
        if common:
            whole = data[runs[0][0] : runs[-1][1]]
            writes += [(target, whole) for target in common]
        return writes

    def _skip(self, target: PeerConnection, runs: Runs) -> None:
        """Correct the counters for messages not written to *target*, and apply the policy."""
        skipped = [(end - start, count) for start, end, to, count in runs if target in to]
        lost = sum(count for _, count in skipped)
        self._counters.delivered -= lost
        self._counters.delivered_bytes -= sum(size for size, _ in skipped)
        if target.is_closing():
            return
        if self._slow == "drop":
            self._counters.dropped += lost
        else:
            self._disconnect_slow(target)

    def _disconnect_slow(self, target: PeerConnection) -> None:
        self._counters.disconnected += 1
        target.disconnect_slow()
