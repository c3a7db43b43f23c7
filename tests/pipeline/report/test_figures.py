"""The page of a report: whole, on its own, and safe whatever queues are called."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from tambomq.pipeline.report.figures import (
    Counts,
    FigureRow,
    Figures,
    Point,
    Reason,
    Spread,
    step_of,
    steps,
)
from tambomq.pipeline.report.page import duration, html, named, step

DAY_MS = 86_400_000
EVIL = "</script><script>alert('x')</script>"


def line(queue: str = "emails", *, p95: int | None = 60, dead: int = 2) -> FigureRow:
    counts = Counts(10, 7, 3, 2, dead)
    return FigureRow("chasqui", queue, "mail", counts, 1, 90, Spread(1, 2, 3), Spread(5, p95, 70))


def figures(queue: str = "emails") -> Figures:
    points = [
        Point(60_000 * place, Counts(5, 4, 1, 1, 0), place, Spread(1, 2, 3), Spread())
        for place in range(5)
    ]
    return Figures(
        *("/lake", 10, 0, 300_000, 60, Counts(25, 20, 5, 5, 0), 4, Spread(1, 2, 3), Spread()),
        points=points,
        lines=[line(queue)],
        slowest=[line(queue)],
        reasons=[Reason(queue, "ValueError: #", 3, queue)],
    )


class Tags(HTMLParser):
    """What a browser makes of a page: its tags, and what stands in the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}, "it must need nothing else"
        if tag not in ("meta", "line", "polyline", "polygon", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  (the library's)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)


def test_every_tag_is_closed_and_nothing_is_loaded_from_elsewhere() -> None:
    page = Tags(html(figures()))
    assert page.open == []
    assert page.seen.count("svg") == 4
    assert not re.search(r"https?://", html(figures()))


def test_the_page_holds_its_figures() -> None:
    page = Tags(html(figures()))
    assert msgspec.convert(json.loads(page.scripts[0]), Figures) == figures()


def test_a_name_cannot_leave_its_place() -> None:
    page = Tags(html(figures(EVIL)))
    assert len(page.scripts) == 2
    assert json.loads(page.scripts[0])["lines"][0]["queue"] == EVIL


def test_a_report_of_nothing_says_so() -> None:
    bare = msgspec.structs.replace(figures(), lines=[], slowest=[], reasons=[], points=[])
    assert "Nothing has died." in html(bare)
    assert "Nothing has run." in html(bare)


@pytest.mark.parametrize(
    ("ms", "expected"),
    [(None, "–"), (0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (90_000, "1.5 min")],
)
def test_durations_are_short(ms: int | None, expected: str) -> None:
    assert duration(ms) == expected


def test_steps_have_names() -> None:
    assert [step(each) for each in (10, 60, 300, 3600, 4 * 3600, 86_400)] == [
        *("10 seconds", "minute", "5 minutes", "hour", "4 hours", "day")
    ]


def test_a_line_is_named_by_job_and_queue() -> None:
    assert named(line()) == "mail, chasqui:emails"


@pytest.mark.parametrize("days", [0, 1, 3, 30, 365, 10_000])
def test_there_are_never_too_many_points(days: int) -> None:
    step_s = step_of(0, days * DAY_MS)
    assert len(steps(0, days * DAY_MS, step_s)) <= 121


def test_chart_steps_are_aligned_and_cover_the_whole_period() -> None:
    assert steps(90_000, 250_000, 60) == [60_000, 120_000, 180_000, 240_000]
    assert steps(60_000, 120_000, 60) == [60_000]
