"""Dead letters are grouped by what they died of, and matched by what a selector says."""

from __future__ import annotations

from tambomq.console.actions.letter_boxes import Letter
from tambomq.console.actions.model import LetterSelector
from tambomq.console.actions.summary import matcher, summarise

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def letter(n: int, error: str = "", minutes_ago: int = 0, reason: str = "unrecoverable") -> Letter:
    text = error or f"no such card {n}"
    at = NOW_MS - minutes_ago * MINUTE_MS
    return Letter("chasqui:mail", f"{n}-0", f"job{n}", "pay", reason, text, at)


def test_letters_that_died_alike_are_one_group() -> None:
    letters = [letter(n) for n in range(3)] + [letter(9, "the printer is on fire")]
    summary = summarise(letters, {"chasqui:mail": 4, "chasqui:idle": 0}, NOW_MS, cut_off=False)
    assert [(each.shape, each.count) for each in summary.groups] == [
        ("no such card <n>", 3),
        ("the printer is on fire", 1),
    ]
    assert (summary.total, summary.by_queue) == (4, {"chasqui:mail": 4})
    assert summary.by_reason == {"unrecoverable": 4}


def test_deaths_of_the_last_hour_are_counted_by_minute() -> None:
    letters = [letter(1), letter(2), letter(3, minutes_ago=59), letter(4, minutes_ago=60)]
    deaths = summarise(letters, {}, NOW_MS, cut_off=False).per_minute
    line = deaths.values["unrecoverable"]
    assert (len(deaths.times_ms), line[-1], line[0], sum(each or 0 for each in line)) == (
        60,
        2,
        1,
        3,
    )


def test_a_group_is_selected_by_its_id() -> None:
    letters = [letter(1), letter(2), letter(9, "the printer is on fire")]
    groups = summarise(letters, {}, NOW_MS, cut_off=False).groups
    matches = matcher(LetterSelector(groups=[groups[0].id]))
    assert [each.id for each in letters if matches(each)] == ["1-0", "2-0"]


def test_conditions_of_a_selector_must_all_hold() -> None:
    letters = [letter(1), letter(2, reason="malformed")]
    both = LetterSelector(reasons=["malformed"], find="CARD 2")
    assert [each.id for each in letters if matcher(both)(each)] == ["2-0"]
    assert [each.id for each in letters if matcher(LetterSelector(ids=["job1"]))(each)] == ["1-0"]
    assert all(map(matcher(LetterSelector()), letters))
