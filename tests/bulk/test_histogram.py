"""Dead letters are counted by what they have in common."""

from __future__ import annotations

import pytest

from tambomq.bulk.histogram import SAMPLES, DeadLetterInfo, histogram, shape


@pytest.mark.parametrize(
    ("detail", "like"),
    [
        ("ValueError: order 17 of 'shop' failed", "ValueError: order <n> of '…' failed"),
        ("timeout after 2.5s", "timeout after <n>s"),
        ("no user 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "no user <id>"),
        ("object at 0x7f3a", "object at <id>"),
        ("job 01JQZK3V9Y8T2 is gone", "job <id> is gone"),
        ("GET https://a.example/b?c=1 failed: 503", "GET <url> failed: <n>"),
        ("ada@example.org bounced", "<mail> bounced"),
        ('KeyError: "a\'b"\n  in line 3', "KeyError: '…' in line <n>"),
        ("can't open the user's file 'a b'", "can't open the user's file '…'"),
        ("", ""),
        ("no numbers here", "no numbers here"),
        ("x" * 5000, "x" * 200 + "…"),
    ],
)
def test_variable_parts_of_an_error_are_masked(detail: str, like: str) -> None:
    assert shape(detail) == like


def test_kinds_are_counted_the_most_frequent_first() -> None:
    letters = [
        DeadLetterInfo("chasqui:q", str(n), "unrecoverable", "mail", f"bad {n}", 1000 + n)
        for n in range(5)
    ]
    other = DeadLetterInfo("rsmq:q", "x", "", "", "bad thing", 7)
    first, second = histogram([other, *letters])
    assert (first.count, first.first_ms, first.last_ms) == (5, 1000, 1004)
    assert first.shape == "bad <n>"
    assert [each.id for each in first.samples] == ["4", "3", "2"][:SAMPLES]
    assert (second.count, second.shape, second.samples) == (1, "bad thing", [other])


def test_without_dead_letters_there_are_no_groups() -> None:
    assert histogram([]) == []
