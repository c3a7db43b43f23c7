"""The checker: histories of a correct queue pass, and each violation that is planted is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.checker import BUSY, TAKEN_OVER_S, Promises, check
from tests.chaos.history import EVERYONE, Action, Event, Outcome

PROMISES = Promises(lease_s=1.0, budget=3)
STRICT = Promises(lease_s=1.0, budget=3, once=True, ordered=True)
WORKERS = ("worker-1.1", "worker-2.1")


class Script:
    """Writes a history, with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.operation = 100.0, 0
        self.events: list[Event] = []

    def add(
        self,
        actor: str,
        action: Action,
        message: str,
        outcome: Outcome | None = "ok",
        *,
        for_s: float = 0.01,
        detail: str = "",
    ) -> None:
        """Add an operation; without an outcome it does not end."""
        self.operation += 1
        begin = Event(self.now, actor, action, "invoke", message, self.operation, detail)
        self.events.append(begin)
        self.now += for_s
        if outcome:
            self.events.append(replace(begin, at=self.now, outcome=outcome))
        self.now += 0.01


@st.composite
def histories(draw: st.DrawFn, ordered: bool = False) -> Script:
    """Histories of a queue that keeps its promises, while workers are killed or stopped."""
    script = Script()
    ends = ("ok",) if ordered else ("ok", "flaky", "dead", "stored", "killed", "stopped")
    for number in range(draw(st.integers(1, 6))):
        message, worker = f"m{number}", draw(st.sampled_from(WORKERS))
        script.add("sender-1", "send", message, draw(st.sampled_from(("ok", "unknown"))))
        end = draw(st.sampled_from(ends))
        if end == "flaky":
            script.add(worker, "run", message, "fail")
        if end == "dead":
            for _ in range(3):
                script.add(worker, "run", message, "fail")
            script.add("end", "dead", message)
            continue
        if end == "stored":
            script.add("end", "stored", message)
            continue
        if end == "killed":
            script.add(victim := f"worker-9.{number}", "run", message, None)
            script.add("nemesis", "fault", victim, detail="kill")
        if end == "stopped":
            script.add(victim := f"worker-9.{number}", "run", message, None)
            script.add("nemesis", "fault", victim, for_s=2.0, detail="stop")
        script.add(worker if not ordered else WORKERS[0], "run", message)
    return script


@given(histories())
def test_a_correct_history_has_no_violation(script: Script) -> None:
    assert check(script.events, PROMISES).violations == ()


@given(histories(ordered=True))
def test_a_correct_history_in_order_has_no_violation(script: Script) -> None:
    assert check(script.events, STRICT).violations == ()


def _lose(script: Script) -> None:
    script.add("sender-1", "send", "victim")


def _lose_while_running(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    script.add("worker-3.1", "run", "victim", None)
    script.add("nemesis", "fault", "worker-3.1", detail="kill")


def _lose_after_a_failure(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim", "fail")


def _run_twice_at_once(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim", for_s=1.0)
    script.now -= 0.5
    script.add(WORKERS[1], "run", "victim")


def _run_beside_a_worker_that_stopped_shortly(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim", None)
    script.add("nemesis", "fault", WORKERS[0], for_s=0.1, detail="stop")
    script.add(WORKERS[1], "run", "victim")


def _run_beside_a_worker_when_another_stopped(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim", None)
    script.add("nemesis", "fault", WORKERS[1], for_s=9, detail="stop")
    script.now += PROMISES.lease_s
    script.add(WORKERS[1], "run", "victim")


def _let_a_stale_worker_make_it_visible(script: Script) -> None:
    script.add("sender-1", "send", "victim")
    first = script.now
    script.add("nemesis", "fault", WORKERS[0], for_s=5, detail="stop")
    script.now = first - 0.005
    script.add(WORKERS[0], "run", "victim", "fail", for_s=5.1)
    script.now -= 2
    script.add(WORKERS[1], "run", "victim", for_s=3)
    script.now -= 0.5
    script.add(WORKERS[0], "run", "victim")


def _run_again(script: Script) -> None:
    script.now += 10
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim")
    script.add(WORKERS[1], "run", "victim")


def _invent(script: Script) -> None:
    script.add(WORKERS[0], "run", "victim")


def _invent_a_dead_letter(script: Script) -> None:
    script.add("end", "dead", "victim")


def _run_before_it_was_sent(script: Script) -> None:
    script.add(WORKERS[0], "run", "victim")
    script.add("sender-1", "send", "victim")


def _retry_too_often(script: Script) -> None:
    script.now += 10
    script.add("sender-1", "send", "victim")
    for _ in range(4):
        script.add(WORKERS[0], "run", "victim", "fail")
    script.add("end", "dead", "victim")


def _run_too_early(script: Script) -> None:
    script.add("sender-1", "send", "victim", detail=f"due={script.now + 5}")
    script.add(WORKERS[0], "run", "victim")


PLANTED: dict[str, list[Callable[[Script], None]]] = {
    "lost": [_lose, _lose_while_running, _lose_after_a_failure],
    "two at once": [
        _run_twice_at_once,
        _run_beside_a_worker_that_stopped_shortly,
        _run_beside_a_worker_when_another_stopped,
        _let_a_stale_worker_make_it_visible,
    ],
    "ran again": [_run_again],
    "from nowhere": [_invent, _invent_a_dead_letter, _run_before_it_was_sent],
    "over budget": [_retry_too_often],
    "early": [_run_too_early],
}


@pytest.mark.parametrize(
    ("kind", "plant"), [(kind, plant) for kind, all_ in PLANTED.items() for plant in all_]
)
@given(script=histories())
def test_a_planted_violation_is_found_and_shown(
    kind: str, plant: Callable[[Script], None], script: Script
) -> None:
    plant(script)
    found = check(script.events, PROMISES).violations
    assert [(each.kind, each.message) for each in found] == [(kind, "victim")]
    assert found[0].excerpt
    assert "victim" in {event.message for event in found[0].excerpt}


@given(histories(ordered=True), st.sampled_from(["again", "late"]))
def test_a_second_delivery_and_a_wrong_order_are_found(script: Script, how: str) -> None:
    script.add("sender-1", "send", "a", detail="key")
    script.add("sender-1", "send", "b", detail="key")
    order = ["a", "b", "a"] if how == "again" else ["b", "a"]
    for message in order:
        script.add("worker-1.1", "run", message)
    promises = replace(STRICT, exclusive=False)
    kind = "delivered twice" if how == "again" else "out of order"
    assert check(script.events, promises).kinds == {kind: 1}


def test_keys_are_not_in_order_with_each_other() -> None:
    script = Script()
    script.add("sender-1", "send", "a", detail="one key")
    script.add("sender-1", "send", "b", detail="another")
    for message in "ba":
        script.add("worker-1.1", "run", message)
    assert check(script.events, STRICT).violations == ()


def test_a_delivery_that_reaches_its_worker_after_the_lease_is_excused() -> None:
    script = Script()
    script.add("sender-1", "send", "a")
    script.add("worker-1.1", "run", "a", None)
    script.add("nemesis", "fault", "worker-2.1", for_s=2, detail="partition")
    script.add("worker-2.1", "run", "a")
    assert check(script.events, PROMISES).violations == ()


@pytest.mark.parametrize("missing", ["queue", "lake"])
def test_a_message_that_one_of_two_required_readers_lacks_is_lost(missing: str) -> None:
    both = replace(STRICT, exclusive=False, completed_by=frozenset({"queue", "lake"}))
    script = Script()
    script.add("sender-1", "send", "a")
    script.add("queue-1.1", "run", "a")
    script.add("lake-1.1", "run", "a")
    assert check(script.events, both).violations == ()
    assert check(script.events, both).counts["completed again"] == 0
    rest = [event for event in script.events if not event.actor.startswith(missing)]
    assert check(rest, both).kinds == {"lost": 1}


def test_a_message_that_is_in_the_lake_twice_is_found() -> None:
    script = Script()
    script.add("sender-1", "send", "a")
    for _ in range(2):
        script.add("lake-1.1", "run", "a")
    assert check(script.events, replace(STRICT, exclusive=False)).kinds == {"delivered twice": 1}


def _overlapping_runs(script: Script, *faults: tuple[str, str, float]) -> None:
    """Two runs at once of one message, while all of *faults* last: a kind, a target, a length."""
    script.add("sender-1", "send", "victim")
    began = script.now
    script.add(WORKERS[0], "run", "victim", for_s=4)
    for kind, target, for_s in faults:
        script.now = began + 0.1
        script.add("nemesis", "fault", target, for_s=for_s, detail=kind)
    script.now = began + 2
    script.add(WORKERS[1], "run", "victim")


def test_two_short_faults_at_once_excuse_no_more_than_each_of_them() -> None:
    script = Script()
    _overlapping_runs(script, ("cut", WORKERS[0], 0.1), ("stop", WORKERS[0], 0.2))
    assert check(script.events, PROMISES).kinds == {"two at once": 1}


def test_one_of_two_overlapping_faults_can_excuse_a_second_run() -> None:
    script = Script()
    _overlapping_runs(script, ("cut", WORKERS[1], 0.1), ("stop", WORKERS[0], 1.5))
    assert check(script.events, PROMISES).violations == ()


def test_two_faults_of_other_processes_excuse_nothing() -> None:
    script = Script()
    _overlapping_runs(script, ("stop", "worker-3.1", 1.5), ("silent", "sender-1", 1.5))
    assert check(script.events, PROMISES).kinds == {"two at once": 1}


def _killed_and_taken_over(after_s: float) -> Script:
    """A worker is killed while it runs a message; another begins it so much later."""
    script = Script()
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim", None)
    script.add("nemesis", "fault", WORKERS[0], detail="kill")
    killed = script.now
    script.now += 10
    script.add("sender-1", "send", "other")
    script.add(WORKERS[1], "run", "other")
    script.now = killed + after_s
    script.add(WORKERS[1], "run", "victim")
    return script


TAKES_OVER = replace(PROMISES, takes_over=True)


def test_what_a_killed_worker_had_must_be_taken_over_in_time() -> None:
    soon = _killed_and_taken_over(PROMISES.lease_s + TAKEN_OVER_S / 2)
    assert check(soon.events, TAKES_OVER).violations == ()
    late = _killed_and_taken_over(PROMISES.lease_s + TAKEN_OVER_S * 2)
    assert check(late.events, TAKES_OVER).kinds == {"left alone": 1}
    assert check(late.events, PROMISES).violations == ()


@pytest.mark.parametrize("kind", ["kill", "stop", "cut"])
def test_another_fault_excuses_a_late_takeover(kind: str) -> None:
    late = _killed_and_taken_over(PROMISES.lease_s + TAKEN_OVER_S * 2)
    late.now = late.events[0].at + PROMISES.lease_s
    late.add("nemesis", "fault", WORKERS[1], detail=kind)
    assert check(late.events, TAKES_OVER).violations == ()


def test_workers_that_are_busy_need_not_take_over() -> None:
    late = _killed_and_taken_over(PROMISES.lease_s + TAKEN_OVER_S * 2)
    began = late.events[0].at
    for number in range(BUSY):
        late.now = began
        late.add("sender-1", "send", f"slow {number}")
        late.add(WORKERS[1], "run", f"slow {number}", for_s=20)
    assert check(late.events, TAKES_OVER).violations == ()


def _run_again_after(kind: str, target: str, *, at_s: float) -> Script:
    """A message that was completed runs again, after a fault so long after its completion."""
    script = Script()
    script.add("sender-1", "send", "victim")
    script.add(WORKERS[0], "run", "victim")
    script.now += at_s
    script.add("nemesis", "fault", target, detail=kind)
    script.now += 0.5
    script.add(WORKERS[1], "run", "victim")
    return script


@pytest.mark.parametrize("kind", ["cut", "kill", "stop"])
def test_a_fault_excuses_a_second_run_only_if_it_came_before_the_first_was_settled(
    kind: str,
) -> None:
    soon = _run_again_after(kind, WORKERS[0], at_s=0.5)
    assert check(soon.events, PROMISES).violations == ()
    late = _run_again_after(kind, WORKERS[0], at_s=5)
    assert check(late.events, PROMISES).kinds == {"ran again": 1}


@pytest.mark.parametrize("kind", ["flushall", "failover", "clock-hour"])
def test_a_server_that_forgets_excuses_a_second_run_at_any_time(kind: str) -> None:
    script = _run_again_after(kind, EVERYONE, at_s=50)
    assert check(script.events, PROMISES).violations == ()


def test_an_outage_of_the_server_excuses_everyone() -> None:
    script = Script()
    script.add("sender-1", "send", "a")
    script.add("worker-1.1", "run", "a", None)
    script.add("nemesis", "fault", EVERYONE, for_s=2, detail="kill-server")
    script.add("worker-2.1", "run", "a")
    assert check(script.events, PROMISES).violations == ()


def test_a_message_dead_lettered_before_its_last_run_is_found() -> None:
    script = Script()
    script.add("sender-1", "send", "a")
    script.add("worker-1.1", "run", "a", "fail")
    script.add("end", "dead", "a")
    assert check(script.events, PROMISES).kinds == {"buried early": 1}


@given(histories(), st.randoms())
def test_the_order_of_lines_does_not_matter(script: Script, random: object) -> None:
    shuffled: Sequence[Event] = sorted(script.events, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert check(shuffled, PROMISES) == check(script.events, PROMISES)
