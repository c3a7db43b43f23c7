"""The nodes of a cluster, as far as redirections have named them."""

from __future__ import annotations

from tambomq.store.primary.slot_map import MOST_NODES, SlotMap

FIRST, SECOND, THIRD = (("10.0.0.1", port) for port in (1, 2, 3))


def test_a_redirection_names_the_node_of_a_slot() -> None:
    before = SlotMap()
    after = before.with_moved({7: FIRST}).with_moved({8: SECOND, 7: THIRD})
    assert after == {7: THIRD, 8: SECOND}
    assert (before, before.nodes) == ({}, ())


def test_a_node_that_cannot_be_reached_loses_its_slots_and_is_asked_last() -> None:
    found = SlotMap().with_moved({7: FIRST}).with_moved({8: SECOND, 9: SECOND})
    assert found.nodes == (SECOND, FIRST)
    left = found.without(SECOND)
    assert left == {7: FIRST}
    assert left.nodes == (FIRST, SECOND)
    assert left.without(FIRST) == {}
    assert left.without(FIRST).nodes == (SECOND, FIRST)


def test_a_node_that_was_never_named_changes_nothing() -> None:
    found = SlotMap().with_moved({7: FIRST})
    assert found.without(SECOND) is found
    assert found.without(None) is found


def test_the_oldest_of_very_many_nodes_are_forgotten() -> None:
    found = SlotMap()
    for port in range(MOST_NODES + 5):
        found = found.with_moved({7: ("10.0.0.1", port)})
    assert len(found.nodes) == MOST_NODES
    assert found.nodes[0] == ("10.0.0.1", MOST_NODES + 4)
