from __future__ import annotations

import pytest

from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.rates import LONGEST_GAP_S, Rates, RateWindow


def counted(entered: int, left: int = 0, died: int = 0) -> QueueSample:
    return QueueSample(depth=0, entered=entered, left=left, died=died)


def test_one_sample_gives_no_rate() -> None:
    assert RateWindow().add(0.0, counted(100)) == Rates()


def test_a_rate_is_the_mean_of_the_last_ten_seconds() -> None:
    window, rates = RateWindow(), Rates()
    for second in range(0, 31, 2):
        # 100 in a second at first, 5 in a second since the 12th.
        rates = window.add(second, counted(100 * min(second, 12) + 5 * max(0, second - 12)))
    assert rates.entered == pytest.approx(5)


def test_a_counter_that_falls_has_begun_anew() -> None:
    window = RateWindow()
    window.add(0, counted(1000))
    window.add(2, counted(0))
    assert window.add(4, counted(8)).entered == 2


def test_samples_before_a_long_pause_are_not_used() -> None:
    window = RateWindow()
    window.add(0, counted(0))
    assert window.add(LONGEST_GAP_S + 1, counted(1000)) == Rates()


def test_what_a_protocol_does_not_count_has_no_rate() -> None:
    window = RateWindow()
    window.add(0, QueueSample(depth=1))
    assert window.add(2, QueueSample(depth=1)) == Rates()


@pytest.mark.parametrize(
    ("entered", "left", "drain_s", "grows_per_s"),
    [(1, 5, 25, None), (5, 1, None, 4), (3, 3, None, None), (None, None, None, None)],
)
def test_a_queue_drains_or_grows(
    entered: float | None, left: float | None, drain_s: float | None, grows_per_s: float | None
) -> None:
    rates = Rates(entered, left)
    assert (rates.drain_s(100), rates.grows_per_s) == (drain_s, grows_per_s)


def test_a_message_that_goes_to_several_consumers_is_done_once() -> None:
    rates = Rates(4, 12, copies=3)
    assert (rates.done, rates.grows_per_s, rates.drain_s(100)) == (4, None, None)
    assert Rates(4, 6, copies=3).grows_per_s == 6
    assert Rates(4, 22, copies=3).drain_s(100) == 10


def test_a_queue_that_keeps_nothing_does_not_grow_without_subscribers() -> None:
    rates = Rates(4, 0, copies=0)
    assert (rates.done, rates.grows_per_s, rates.drain_s(0)) == (0, None, None)


def test_an_empty_queue_has_nothing_to_drain() -> None:
    assert Rates(1, 5).drain_s(0) is None
