from __future__ import annotations

from tambomq.console.read.history import (
    FINE_MS,
    MINUTE_MS,
    MINUTES,
    YOUNG_MS,
    History,
    QueueHistory,
    Ring,
)
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.rates import Rates

NOON = 1_000_000 * MINUTE_MS


def test_a_ring_has_the_last_value_of_each_minute_of_the_last_hour() -> None:
    ring = Ring()
    for minute in range(100):
        ring.put(NOON + minute * MINUTE_MS, 0)
        ring.put(NOON + minute * MINUTE_MS + 30_000, minute)
    assert ring.values(NOON + 99 * MINUTE_MS) == list(range(40, 100))


def test_minutes_in_which_nothing_was_looked_at_are_missing() -> None:
    ring = Ring()
    ring.put(NOON, 7)
    values = ring.values(NOON + 2 * MINUTE_MS)
    assert values[-3:] == [7, None, None]
    assert values[:-3] == [None] * 57


def test_a_value_of_an_hour_ago_does_not_come_back() -> None:
    ring = Ring()
    ring.put(NOON, 7)
    assert ring.values(NOON + MINUTES * MINUTE_MS) == [None] * MINUTES


def test_a_ring_of_rates_has_their_mean() -> None:
    ring = Ring()
    for rate in (1, 2, 6):
        ring.add(NOON, rate)
    assert ring.values(NOON)[-1] == 3


def test_times_are_the_beginnings_of_steps() -> None:
    assert Ring(3, 10).times_ms(47) == [20, 30, 40]


def test_deaths_are_counted_since_the_first_look() -> None:
    past = QueueHistory()
    for minute, died in enumerate((500, 503, 503, 510)):
        past.record(NOON + minute * MINUTE_MS, QueueSample(depth=1, died=died), Rates())
    now = NOON + 3 * MINUTE_MS
    assert past.died_within(now, 60) == 10
    assert past.died_within(now, 1) == 7
    assert past.depths(now)[-4:] == [1, 1, 1, 1]


def test_the_first_ten_minutes_have_steps_of_ten_seconds() -> None:
    past = QueueHistory()
    for step in range(6):
        past.record(NOON + step * FINE_MS, QueueSample(depth=step), Rates(step, 0))
    now = NOON + 5 * FINE_MS
    assert past.fine_depths(now)[-7:] == [None, 0, 1, 2, 3, 4, 5]
    assert past.depths(now)[-2:] == [None, 5]
    assert past.series(now).values["in"][-6:] == [0, 1, 2, 3, 4, 5]
    assert past.series(now).times_ms[-2:] == [NOON + 4 * FINE_MS, now]
    later = past.series(NOON + YOUNG_MS)
    assert later.times_ms[-1] - later.times_ms[-2] == MINUTE_MS
    assert later.values["in"][-11] == 2.5


def test_a_history_sums_all_queues_and_forgets_those_that_are_gone() -> None:
    history = History()
    sample = QueueSample(depth=3)
    both = {"rsmq:a": (sample, Rates(2, 1)), "rsmq:b": (sample, Rates(4, 3, 0.5, copies=3))}
    history.record(NOON, both)
    totals = history.totals(NOON)
    assert {name: line[-1] for name, line in totals.values.items()} == {
        "in": 6,
        "out": 2,
        "failed": 0.5,
    }
    assert len(totals.times_ms) == MINUTES * MINUTE_MS // FINE_MS
    assert history.of("rsmq:b").series(NOON).values["in"][-1] == 4
    history.record(NOON, {"rsmq:a": both["rsmq:a"]})
    assert history.of("rsmq:b").depths(NOON) == [None] * MINUTES


def test_a_refresh_without_rates_adds_no_zeros_to_the_totals() -> None:
    history = History()
    history.record(NOON, {"rsmq:a": (QueueSample(depth=3), Rates())})
    assert history.totals(NOON).values["in"][-1] is None
