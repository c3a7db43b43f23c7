"""The memory budget: incomplete frames by age and size, and the choice of clients to disconnect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tambomq.kqueue import budget
from tambomq.kqueue.budget import PartialFrames


def held(*parts: tuple[str, int, float]) -> PartialFrames[str]:
    frames: PartialFrames[str] = PartialFrames()
    for client, size, began in parts:
        frames.update(client, size, began, is_new=True)
    return frames


def test_a_growing_frame_keeps_its_start_time() -> None:
    frames = held(("a", 10, 1.0), ("b", 10, 2.0))
    frames.update("a", 500, 9.0, is_new=False)
    assert (frames.total, frames.oldest) == (510, 1.0)
    assert frames.started_by(1.5) == ["a"]


def test_the_next_frame_of_a_client_has_its_own_start_time() -> None:
    frames = held(("a", 10, 1.0), ("b", 10, 2.0))
    frames.update("a", 10, 9.0, is_new=True)
    assert frames.started_by(8.0) == ["b"]


def test_a_complete_frame_is_not_counted() -> None:
    frames = held(("a", 10, 1.0), ("b", 20, 2.0))
    frames.update("a", 0, 3.0, is_new=False)
    frames.remove("b")
    frames.remove("never seen")
    assert (frames.total, frames.oldest, frames.started_by(99.0)) == (0, None, [])


def test_the_time_of_a_frame_restarts_after_reading_was_paused() -> None:
    frames = held(("a", 10, 1.0), ("b", 20, 2.0))
    frames.restart("a", 5.0)
    frames.restart("never seen", 5.0)
    assert (frames.total, frames.started_by(4.0)) == (30, ["b"])


def test_the_oldest_large_frame_goes_first_and_the_small_ones_last() -> None:
    frames = held(("small", 10, 1.0), ("old", 900, 2.0), ("young", 1000, 3.0))
    assert [client for client, _ in frames.victims()] == ["old", "young", "small"]


def test_no_client_is_chosen_below_the_limit() -> None:
    assert budget.choose_victims([60, 40], [iter(()), iter(())], 100) == []


def test_the_largest_holder_of_the_largest_kind_is_chosen_first() -> None:
    names = iter([("reader", 300)])
    frames = iter([("sender", 400), ("other", 100)])
    assert budget.choose_victims([500, 300], [frames, names], 700) == ["sender"]


def test_a_message_in_several_write_buffers_counts_once() -> None:
    waiting = {"a": 100, "b": 90, "c": 50}
    groups = {"a": "orders", "b": "orders", "c": "mail"}
    assert budget.shared_total(waiting, groups) == 150
    assert list(budget.largest_of_shared(waiting, groups)) == [("a", 10), ("b", 90), ("c", 50)]


@given(st.dictionaries(st.integers(), st.integers(1, 99)), st.integers(1, 500))
def test_the_remaining_memory_is_below_the_limit(sizes: dict[int, int], limit: int) -> None:
    waiting = iter(list(budget.largest(sizes)))
    chosen = budget.choose_victims([sum(sizes.values())], [waiting], limit)
    assert sum(sizes.values()) - sum(sizes[each] for each in chosen) <= limit
