from __future__ import annotations

from tambomq.console.read.queues.turns import Turns


def test_items_within_the_limit_are_all_taken_each_time() -> None:
    turns = Turns(3)
    assert [turns.take("ab"), turns.take("ab")] == [["a", "b"], ["a", "b"]]


def test_each_item_has_its_turn_once_in_a_round() -> None:
    turns = Turns(3)
    assert "".join("".join(turns.take("abcde")) for _ in range(5)) == "abcde" * 3


def test_a_list_that_shrinks_is_gone_through_from_the_start() -> None:
    turns = Turns(2)
    for _ in range(4):
        turns.take("abcdefgh")
    assert len(turns.take("abc")) == 2
