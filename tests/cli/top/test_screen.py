"""The screen of ``tambo top``: order, width, height, hostile names, a lost server."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from tambomq.cli.top import SORTS, rows
from tambomq.cli.top.screen import KEYS, screen
from tambomq.console.model import Overview, Trouble
from tests.cli.top.overviews import REDIS, overview, row

FAILING = Trouble(kind="failing", severity="red", why="9 of 10 runs fail")
SLOW = Trouble(kind="growing", severity="amber", why="it grows by 5 a second")


def drawn(
    seen: Overview | None, *, sort: str = "depth", width: int = 80, height: int = 24
) -> list[str]:
    """The lines of the screen."""
    console = Console(width=width, height=height, highlight=False, color_system=None)
    made = screen(seen, sort=sort, backwards=False, size=(width, height), now_ms=65_000)
    with console.capture() as text:
        console.print(made)
    return text.get().splitlines()


def queues(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if ":" in line.split()[0] and line[0] == " "]


@pytest.mark.parametrize(
    ("sort", "first"),
    [("depth", "b"), ("in", "a"), ("out", "c"), ("dead", "c"), ("oldest", "a"), ("name", "a")],
)
def test_queues_are_sorted_as_asked(sort: str, first: str) -> None:
    found = [
        row("rsmq:c", 1, out_per_s=3.0, dead=4),
        row("chasqui:b", 9, oldest_s=1.0),
        row("gomq:a", 2, in_per_s=5.0, oldest_s=7.0),
    ]
    assert rows.in_order(found, sort)[0].name == first
    assert rows.in_order(found, sort, backwards=True)[-1].name == first


def test_each_sort_has_a_key_and_an_option() -> None:
    assert list(SORTS) == list(rows.SORTS) == list(KEYS.values())


@pytest.mark.parametrize("width", [40, 80, 119, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    many = [row(f"chasqui:{'x' * n}", n, size_bytes=n, trouble=FAILING) for n in range(0, 300, 30)]
    lost = msgspec.structs.replace(REDIS, ok=False, why="w" * 300)
    for redis in (REDIS, lost):
        lines = drawn(overview(*many, redis=redis), width=width)
        assert max(map(len, lines)) <= width
        assert len(lines) <= 24


def test_queues_that_do_not_fit_are_counted() -> None:
    lines = drawn(overview(*(row(f"rsmq:q{n}", n) for n in range(100))), height=10)
    assert len(lines) == 10
    assert lines[-2] == "… and 95 more"
    assert queues(lines)[0] == "rsmq:q99"


def test_names_and_errors_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\n"
    trouble = Trouble(kind="failing", severity="red", why=evil)
    status = msgspec.structs.replace(REDIS, ok=False, why=evil)
    for redis in (REDIS, status):
        text = "\n".join(drawn(overview(row("rsmq:" + evil, 1, trouble=trouble), redis=redis)))
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "\\x1b[2J" in text


def test_markup_in_a_name_is_shown_as_it_is() -> None:
    assert any("rsmq:[red]x[/red]" in line for line in drawn(overview(row("rsmq:[red]x[/red]"))))


def test_trouble_has_a_sign_and_a_sentence_the_worst_first() -> None:
    lines = drawn(
        overview(row("rsmq:a", 3, trouble=SLOW), row("rsmq:b", 2, trouble=FAILING),
                 row("rsmq:c", 1, paused=True))
    )  # fmt: skip
    assert [line[0] for line in lines[3:6]] == ["?", "!", "="]
    assert lines[6:8] == ["rsmq:b: 9 of 10 runs fail", "rsmq:a: it grows by 5 a second"]


def test_a_lost_server_is_reported_and_the_last_numbers_stay() -> None:
    redis = msgspec.structs.replace(
        REDIS, ok=False, lost_since_ms=60_000, next_try_ms=67_000, why="refused"
    )
    lines = drawn(overview(row("rsmq:a", 123), redis=redis))
    assert lines[1].startswith("Redis is lost for 5.0s: these numbers are the last. Next try in 2")
    assert "123" in lines[3]


def test_screen_without_queues_says_how_to_get_some() -> None:
    assert "no queue yet: `tambo demo` makes some, with traffic" in drawn(overview())
    assert drawn(None)[0] == "tambo top  waiting for the first numbers"


def test_wide_terminal_gets_more_columns() -> None:
    seen = overview(row("rsmq:a", 3, size_bytes=2048, drain_s=90.0, trouble=SLOW))
    assert "drained in" not in "\n".join(drawn(seen, width=119))
    text = "\n".join(drawn(seen, width=120))
    assert ("90s" in text, "2K" in text, "growing" in text) == (True, True, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.25, "0.2s"), (99, "99s"), (300, "5m"), (7300, "2h"), (200_000, "2d")],
)
def test_ages_are_short(seconds: float | None, text: str) -> None:
    assert rows.cells(row("rsmq:a", oldest_s=seconds))[5] == text


@pytest.mark.parametrize(
    ("depth", "text"),
    [(9999, "9999"), (12_345, "12,345"), (999_999, "999,999"), (2_500_000, "2.5M")],
)
def test_counts_fit_their_column(depth: int, text: str) -> None:
    assert rows.cells(row("rsmq:a", depth))[1] == text
