"""Handing messages on: what is written to whom, and what is counted. No sockets."""

from __future__ import annotations

from tambomq.kqueue.flow import End, Flow, Slow
from tambomq.kqueue.frames import Run
from tambomq.kqueue.model import Counters


class Fake:
    """A connection that writes into a list."""

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

    def cut(self) -> None:
        self.closing = True

    def cut_for_memory(self) -> None:
        raise AssertionError

    def cut_for_time(self) -> None:
        raise AssertionError

    def is_paused(self) -> bool:
        return self.paused

    def waiting_bytes(self) -> int:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        raise AssertionError


def flow(slow: Slow = "disconnect") -> tuple[Flow, Counters]:
    counters = Counters()
    return Flow(slow, counters), counters


def run(start: int, end: int, *targets: End, count: int = 1) -> Run[frozenset[End]]:
    return start, end, frozenset(targets), count


def test_a_small_part_of_what_was_read_does_not_keep_all_of_it_in_memory() -> None:
    one, sender = Fake(), Fake()
    passing, _ = flow()
    passing.deliver(sender, b"x" * 1000, [run(0, 499, one)])
    passing.deliver(sender, b"x" * 1000, [run(0, 10, one), run(10, 1000)])
    assert one.written == [b"x" * 499, b"x" * 10]
    assert all(isinstance(each, bytes) for each in one.written)
    passing.deliver(sender, b"x" * 1000, [run(0, 990, one)])
    assert isinstance(one.written[-1], memoryview)


def test_each_target_has_one_write_for_each_read_in_the_order_of_its_messages() -> None:
    one, two = Fake(), Fake()
    passing, counters = flow()
    runs = [run(0, 1, one), run(1, 2, two), run(2, 4, one, two, count=2), run(4, 5), run(5, 6, one)]
    passing.deliver(Fake(), b"abcdef", runs)
    assert (one.written, two.written) == ([b"acdf"], [b"bcd"])
    assert (counters.received, counters.received_bytes) == (6, 6)
    assert (counters.delivered, counters.delivered_bytes, counters.unrouted) == (7, 7, 1)


def test_who_gets_every_run_gets_the_same_as_in_pieces() -> None:
    everything, one, two = Fake(), Fake(), Fake()
    passing, counters = flow()
    runs = [run(1, 2, everything, one), run(2, 4, everything, two, count=2), run(4, 5, everything)]
    passing.deliver(Fake(), b"abcdef", runs)
    assert (everything.written, one.written, two.written) == ([b"bcde"], [b"b"], [b"cd"])
    assert (counters.delivered, counters.delivered_bytes, counters.unrouted) == (7, 7, 0)


def test_what_finds_its_target_gone_is_not_counted_as_delivered() -> None:
    gone, there = Fake(), Fake()
    gone.closing = True
    passing, counters = flow()
    passing.deliver(Fake(), b"abc", [run(0, 3, gone, there, count=3)])
    assert (gone.written, there.written) == ([], [b"abc"])
    assert (counters.delivered, counters.delivered_bytes) == (3, 3)
    assert (counters.dropped, counters.disconnected) == (0, 0)


def test_a_sender_waits_for_each_full_target_and_for_no_other() -> None:
    one, two, other, sender = Fake(), Fake(), Fake(), Fake()
    passing, counters = flow("block")
    one.full = two.full = True
    passing.deliver(sender, b"ab", [run(0, 1, one, two), run(1, 2, other)])
    passing.deliver(other, b"ab", [run(0, 2, sender)])
    assert sender.paused
    assert not other.paused
    passing.free(one)
    passing.free(one)
    assert sender.paused
    passing.forget(two)
    assert not sender.paused
    assert counters.delivered == 4


def test_a_sender_that_leaves_is_not_woken() -> None:
    one, sender = Fake(), Fake()
    passing, _ = flow("block")
    one.full = True
    passing.deliver(sender, b"a", [run(0, 1, one)])
    passing.forget(sender)
    passing.free(one)
    assert sender.paused
    assert not passing._waits
    assert not passing._holds
