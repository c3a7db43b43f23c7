"""The ledger of a soak: what is lost or doubled is counted, in whatever order it is read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.chaos.history import Action, Event, Outcome, Recorder
from tests.chaos.soak.ledger import KEPT_S, Ledger, Tail


def _event(
    action: Action,
    message: str,
    actor: str = "worker-1.1",
    at: float = 0.0,
    *,
    outcome: Outcome = "ok",
    detail: str = "",
) -> Event:
    return Event(at, actor, action, outcome, message, 1, detail)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_a_message_is_open_until_it_is_completed(order: tuple[int, ...]) -> None:
    events = [_event("send", "a"), _event("send", "b"), _event("run", "a")]
    ledger = Ledger()
    for each in order:
        ledger.feed([events[each]])
    assert list(ledger.open) == ["b"]
    assert (ledger.confirmed, ledger.completed, ledger.doubles) == (2, 1, 0)


def test_a_failed_run_completes_no_message_and_an_unknown_send_confirms_none() -> None:
    ledger = Ledger()
    ledger.feed([_event("send", "a")])
    ledger.feed([_event("run", "a", outcome="fail")])
    ledger.feed([_event("send", "b", outcome="unknown")])
    assert list(ledger.open) == ["a"]


def test_a_message_is_lost_when_it_is_nowhere_twice_in_a_row() -> None:
    ledger = Ledger()
    ledger.feed([_event("send", name) for name in ("stored", "moving", "lost")])
    overdue = ledger.overdue(now=100, for_s=60)
    assert ledger.lost(overdue, {"stored"}) == set()
    assert ledger.lost(overdue, {"stored", "moving"}) == {"lost"}


def test_only_old_messages_are_overdue() -> None:
    ledger = Ledger()
    ledger.feed([_event("send", "old", at=0), _event("send", "new", at=90)])
    assert ledger.overdue(now=100, for_s=60) == {"old"}


def test_a_message_that_is_completed_again_is_a_double() -> None:
    ledger = Ledger()
    ledger.feed([_event("run", "a"), _event("run", "a", "worker-2.1")])
    assert (ledger.completed, ledger.doubles) == (1, 1)


def test_each_consumer_may_have_each_message_once() -> None:
    ledger = Ledger(once=True)
    ledger.feed([_event("run", "a", actor) for actor in ("consumer-1.1", "consumer-2.1")])
    assert (ledger.completed, ledger.doubles) == (1, 0)
    ledger.feed([_event("run", "a", "consumer-1.2")])
    assert ledger.doubles == 1


def test_only_starvation_longer_than_the_threshold_is_counted() -> None:
    ledger = Ledger(costly_s=1.5)
    for kind, for_s in (("starved", 1.6), ("slow machine", 2.0), ("starved", 1.4), ("cut", 9.0)):
        begin = _event("fault", "*", outcome="invoke", detail=kind)
        ledger.feed([begin, _event("fault", "*", at=for_s, detail=kind)])
    assert ledger.starved == 2


def test_old_messages_are_forgotten() -> None:
    ledger = Ledger()
    ledger.feed([_event("run", "a")])
    ledger.forget(KEPT_S + 1)
    assert ledger.done == {}
    assert ledger.completed == 1


def test_space_is_given_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr("subprocess.run", lambda command, **_: given.extend(command[2:4]))
    monkeypatch.setattr("tests.chaos.soak.ledger.which", lambda _: "fallocate")
    recorder, tail = Recorder(tmp_path, "sender-1.1"), Tail(tmp_path)
    for _ in range(2):
        recorder.note("send", "a", "x" * 50_000)
        list(tail.events())
        tail.free()
        tail.free()
    assert given == [
        *("--offset=0", "--length=65536"),
        *("--offset=65536", "--length=131072"),
    ]


def test_each_line_is_read_once_also_after_its_space_was_given_back(tmp_path: Path) -> None:
    recorder, tail = Recorder(tmp_path, "sender-1.1"), Tail(tmp_path)
    for number in range(3):
        recorder.note("send", str(number), "x" * 50_000)
        messages = [each.message for each in tail.events() if each.outcome == "ok"]
        assert messages == [str(number)]
        tail.free()
    assert list(tail.events()) == []
