"""Which queues have a journal, and what bounds may be."""

from __future__ import annotations

import pytest

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal.recording import BOUNDS, Bounds, Recording, bounds_of, twin
from tambomq.store.call import load_script


def test_names_and_patterns_choose_queues() -> None:
    chosen = Recording("rsmq", ("orders", "audit-*"))
    for queue in ("orders", "audit-", "audit-7"):
        keys = chosen.of(queue)
        assert keys is not None
        assert (keys.protocol, keys.queue) == ("rsmq", queue)
    for queue in ("order", "orders2", "xaudit-1", "ORDERS"):
        assert chosen.of(queue) is None


def test_journals_of_a_namespace_begin_with_its_name() -> None:
    keys = Recording("rsmq", ("*",), within="mine:").of("q")
    assert keys is not None
    assert keys.queue == "mine:q"


@pytest.mark.parametrize("patterns", ["orders", ("",), (None,), (b"x",)])
def test_what_is_no_pattern_is_refused(patterns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidFormat, match="journal"):
        Recording("rsmq", patterns)


@pytest.mark.parametrize(
    ("entries", "size"), [(1, 2000), (0, 2000), (-1, 2000), (True, 2000), (10, 1023), (10, 1 << 53)]
)
def test_bounds_that_hold_nothing_are_refused(entries: int, size: int) -> None:
    with pytest.raises(InvalidValue):
        Bounds(entries, size)


def test_an_option_is_a_switch_or_bounds() -> None:
    assert bounds_of(False) is None
    assert bounds_of(True) is BOUNDS
    assert bounds_of(Bounds(5)) == Bounds(5)


def test_a_twin_holds_its_script_unchanged() -> None:
    script = load_script("tambomq.rsmq", "receive")
    shebang, body = script.source.split("\n", 1)
    found = twin(script, "tambomq.rsmq", "journal_received")
    assert found.source.startswith(f"{shebang}\n")
    assert body in found.source
    assert found.sha != script.sha
