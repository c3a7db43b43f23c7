"""Denied calls: counted for all, logged for some, never with what a caller sent."""

from __future__ import annotations

import logging

import pytest

from tambomq.access.denials import MAX_LINES, MAX_SERIES, OTHER, Denial, Denials
from tambomq.errors import AccessDenied, NotAuthenticated


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_denied_calls_are_counted_by_user_and_right() -> None:
    denials = Denials("GOMQ")
    for _ in range(3):
        denials.count(AccessDenied("a", "send", "gomq:x"))
    denials.count(AccessDenied("a", "look", "gomq:x"))
    denials.count(NotAuthenticated("the token is not valid"))
    assert denials.list() == [
        Denial("a", "send", 3),
        Denial("a", "look", 1),
        Denial("_unknown", "login", 1),
    ]


def test_the_number_of_series_is_bounded() -> None:
    denials = Denials("GOMQ")
    for number in range(10 * MAX_SERIES):
        denials.count(AccessDenied(f"u{number}", "send", "gomq:x"))
    assert len(denials.list()) == MAX_SERIES + 1
    assert denials.list()[-1] == Denial(OTHER, OTHER, 9 * MAX_SERIES)


def test_lines_are_limited_and_those_left_out_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    denials = Denials("GOMQ", clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(MAX_LINES + 10):
            denials.count(AccessDenied("a", "send", "gomq:x"), "127.0.0.1:5")
        assert len(caplog.records) == MAX_LINES
        clock.now_s = 2.0
        denials.count(AccessDenied("a", "send", "gomq:x"), "127.0.0.1:5")
    assert "10 more since the last line" in caplog.text
    assert "a does not have the right to send for gomq:x" in caplog.text
    assert "127.0.0.1:5" in caplog.text
