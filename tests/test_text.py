"""Untrusted text on a log line, addresses, and sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tambomq
from tambomq.text import format_address, in_units, spelled_out


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
def test_characters_that_cannot_be_printed_are_escaped(text: str, shown: str) -> None:
    assert spelled_out(text) == shown


@pytest.mark.parametrize(
    ("host", "formatted"),
    [("127.0.0.1", "127.0.0.1:1"), ("::1", "[::1]:1"), ("redis.internal", "redis.internal:1")],
)
def test_only_an_ipv6_address_is_put_in_brackets(host: str, formatted: str) -> None:
    assert format_address(host, 1) == formatted


def test_no_other_module_puts_an_address_in_brackets() -> None:
    source, brackets = Path(tambomq.__file__).parent, re.compile(r'f"[^"]*\[\{[\w.]*host\}\]')
    formatting = [path.name for path in source.rglob("*.py") if brackets.search(path.read_text())]
    assert formatting == ["text.py"]


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (1 << 41, "2.0 TiB")])
def test_sizes_have_units(size: int, text: str) -> None:
    assert in_units(size) == text
