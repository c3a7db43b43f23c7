"""Journal policies: patterns that choose queues, valid bounds, and scripts with hooks."""

from __future__ import annotations

import pickle

import pytest

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.store.call import journalled, load_script


def test_names_and_patterns_choose_queues() -> None:
    chosen = JournalPolicy("rsmq", ("orders", "audit-*"))
    for queue in ("orders", "audit-", "audit-7"):
        keys = chosen.of(queue)
        assert keys is not None
        assert (keys.protocol, keys.queue) == ("rsmq", queue)
    for queue in ("order", "orders2", "xaudit-1", "ORDERS"):
        assert chosen.of(queue) is None


def test_journals_of_a_namespace_begin_with_its_name() -> None:
    keys = JournalPolicy("rsmq", ("*",), within="mine:").of("q")
    assert keys is not None
    assert keys.queue == "mine:q"


@pytest.mark.parametrize("patterns", ["orders", ("",), (None,), (b"x",)])
def test_an_invalid_pattern_is_refused(patterns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidFormat, match="journal"):
        JournalPolicy("rsmq", patterns)


@pytest.mark.parametrize(
    ("entries", "size"), [(1, 2000), (0, 2000), (-1, 2000), (True, 2000), (10, 1023), (10, 1 << 53)]
)
def test_bounds_that_hold_nothing_are_refused(entries: int, size: int) -> None:
    with pytest.raises(InvalidValue):
        JournalBounds(entries, size)


def test_an_option_is_a_switch_or_bounds() -> None:
    assert JournalPolicy.for_queue("chasqui", "q", False) is None
    for option, bounds in ((True, DEFAULT_BOUNDS), (JournalBounds(5), JournalBounds(5))):
        policy = JournalPolicy.for_queue("chasqui", "q", option)
        assert policy is not None
        assert policy.bounds == bounds


@pytest.mark.parametrize("queue", ["a*", "a?", "[ab]", "a]b", "[!a]"])
def test_the_policy_for_a_queue_takes_its_name_literally(queue: str) -> None:
    policy = JournalPolicy.for_queue("gomq", queue, True)
    assert policy is not None
    assert policy.of(queue) is not None
    assert policy.of("a") is None
    assert policy.of("ab") is None


def test_a_policy_can_be_pickled() -> None:
    made = pickle.dumps(JournalPolicy("rsmq", ("a*",), JournalBounds(5), within="ns:"))
    policy = pickle.loads(made)  # noqa: S301  (made above)
    keys = policy.of("ab")
    assert keys is not None
    assert (keys.queue, policy.bounds) == ("ns:ab", JournalBounds(5))


def test_a_script_without_a_journal_has_no_trace_of_one() -> None:
    plain, hooked = (load_script("tambomq.rsmq.ops", "send", journal=on) for on in (False, True))
    code = [line for line in plain.source.splitlines() if not line.startswith("-- NEEDS")]
    assert not [line for line in code if "journal" in line.lower()]
    assert "stored(scores, fields)\n" in hooked.source
    assert hooked.source.startswith("#!lua\n")
    assert "-- journal_entries: " in hooked.source
    assert journalled(plain) == hooked


def test_hooks_in_parts_are_left_out_too() -> None:
    plain = load_script("tambomq.gomq.ops", "reap").source
    assert "-- requeue_unacked: " in plain
    assert "delivered(" not in plain


def test_a_script_without_hooks_has_no_journal() -> None:
    with pytest.raises(LookupError, match=r"peek\.lua has no journal hooks"):
        load_script("tambomq.rsmq.ops", "peek", journal=True)
