"""Delivery without sockets: the writes to each target, and the counters."""

from __future__ import annotations

from tambomq.kqueue.delivery import Fanout, PeerConnection, SlowConsumerPolicy
from tambomq.kqueue.frames import Run
from tambomq.kqueue.model import Counters


class FakePeer:
    """A connection that appends its writes to a list."""

    def __init__(self) -> None:
        self.full = self.closing = self.paused = False
        self.written: list[bytes | memoryview] = []
        self.write = self.written.append

    def is_closing(self) -> bool:
        return self.closing

    def pause(self) -> None:
        assert not self.paused
        self.paused = True

    def resume(self) -> None:
        assert self.paused
        self.paused = False

    def disconnect_slow(self) -> None:
        self.closing = True

    def disconnect_for_memory(self) -> None:
        raise AssertionError

    def disconnect_for_time(self) -> None:
        raise AssertionError

    def is_paused(self) -> bool:
        return self.paused

    def buffered_bytes(self) -> int:
        raise AssertionError

    def describe(self) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        raise AssertionError


def new_fanout(slow: SlowConsumerPolicy = "disconnect") -> tuple[Fanout, Counters]:
    counters = Counters()
    return Fanout(slow, counters), counters


def run(
    start: int, end: int, *targets: PeerConnection, count: int = 1
) -> Run[frozenset[PeerConnection]]:
    return start, end, frozenset(targets), count


def test_a_small_slice_of_a_read_is_copied() -> None:
    one, sender = FakePeer(), FakePeer()
    fanout, _ = new_fanout()
    fanout.deliver(sender, b"x" * 1000, [run(0, 499, one)])
    fanout.deliver(sender, b"x" * 1000, [run(0, 10, one), run(10, 1000)])
    assert one.written == [b"x" * 499, b"x" * 10]
    assert all(isinstance(each, bytes) for each in one.written)
    fanout.deliver(sender, b"x" * 1000, [run(0, 990, one)])
    assert isinstance(one.written[-1], memoryview)


def test_each_target_gets_one_write_per_read_with_its_messages_in_order() -> None:
    one, two = FakePeer(), FakePeer()
    fanout, counters = new_fanout()
    runs = [run(0, 1, one), run(1, 2, two), run(2, 4, one, two, count=2), run(4, 5), run(5, 6, one)]
    fanout.deliver(FakePeer(), b"abcdef", runs)
    assert (one.written, two.written) == ([b"acdf"], [b"bcd"])
    assert (counters.received, counters.received_bytes) == (6, 6)
    assert (counters.delivered, counters.delivered_bytes, counters.unrouted) == (7, 7, 1)


def test_a_target_of_every_run_gets_one_slice() -> None:
    everything, one, two = FakePeer(), FakePeer(), FakePeer()
    fanout, counters = new_fanout()
    runs = [run(1, 2, everything, one), run(2, 4, everything, two, count=2), run(4, 5, everything)]
    fanout.deliver(FakePeer(), b"abcdef", runs)
    assert (everything.written, one.written, two.written) == ([b"bcde"], [b"b"], [b"cd"])
    assert (counters.delivered, counters.delivered_bytes, counters.unrouted) == (7, 7, 0)


def test_a_message_for_a_closing_target_is_not_counted_as_delivered() -> None:
    closing, open_peer = FakePeer(), FakePeer()
    closing.closing = True
    fanout, counters = new_fanout()
    fanout.deliver(FakePeer(), b"abc", [run(0, 3, closing, open_peer, count=3)])
    assert (closing.written, open_peer.written) == ([], [b"abc"])
    assert (counters.delivered, counters.delivered_bytes) == (3, 3)
    assert (counters.dropped, counters.disconnected) == (0, 0)


def test_a_sender_is_paused_until_its_full_targets_have_drained() -> None:
    one, two, other, sender = FakePeer(), FakePeer(), FakePeer(), FakePeer()
    fanout, counters = new_fanout("block")
    one.full = two.full = True
    fanout.deliver(sender, b"ab", [run(0, 1, one, two), run(1, 2, other)])
    fanout.deliver(other, b"ab", [run(0, 2, sender)])
    assert sender.paused
    assert not other.paused
    fanout.unblock(one)
    fanout.unblock(one)
    assert sender.paused
    fanout.remove(two)
    assert not sender.paused
    assert counters.delivered == 4


def test_a_removed_sender_is_not_resumed() -> None:
    one, sender = FakePeer(), FakePeer()
    fanout, _ = new_fanout("block")
    one.full = True
    fanout.deliver(sender, b"a", [run(0, 1, one)])
    fanout.remove(sender)
    fanout.unblock(one)
    assert sender.paused
    assert not fanout._blocked_by
    assert not fanout._blocking
