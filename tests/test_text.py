"""Text of strangers on a line of ours."""

from __future__ import annotations

import pytest

from tambomq.text import spelled_out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders of café", "orders of café"),
        ("a\nERROR b", "a\\nERROR b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202egnp", "\\u202egnp"),
        ("lone \udcff", "lone \\udcff"),
    ],
)
def test_what_cannot_be_printed_is_spelled_out(text: str, shown: str) -> None:
    assert spelled_out(text) == shown
