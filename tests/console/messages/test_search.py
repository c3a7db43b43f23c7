"""What a search finds: words, parts, times, names."""

from __future__ import annotations

import pytest

from tambomq.console.messages.model import MessageRow
from tambomq.console.messages.search import parse_search
from tambomq.errors import InvalidFormat

NOW = 1_896_080_400_000  # 2030-01-31 09:00 UTC
ROW = MessageRow(
    queue="chasqui:payments",
    id="Ord-42",
    name="charge",
    state="dead",
    added_ms=NOW - 3_600_000,
    died_ms=NOW - 60_000,
    error="retries_exhausted: ReadTimeout: acquirer 7c1e",
)
BODY = '{"customer": "cus_4471", "note": "two words"}'


@pytest.mark.parametrize(
    "find",
    [
        "",
        "ord-42",
        "CHARGE timeout",
        '"two words"',
        "id:ord",
        "name:charge",
        "error:readtimeout",
        "body:cus_4471",
        'error:"acquirer 7c1e"',
        "since:2m",
        "since:1.5m until:30s",
        "since:2030-01-31T08:58 until:2030-01-31T08:59:30Z",
        "until:2030-01-31T10:59+02:00",
    ],
)
def test_a_search_that_matches_finds_the_message(find: str) -> None:
    assert parse_search(find, "", NOW).matches(ROW, BODY)


@pytest.mark.parametrize(
    "find",
    [
        "nothing",
        "charge nothing",
        '"words two"',
        "id:charge",
        "name:ord",
        "body:charge",
        "since:30s",
        "until:2m",
        "http://x",
    ],
)
def test_a_search_that_does_not_match_finds_nothing(find: str) -> None:
    assert not parse_search(find, "", NOW).matches(ROW, BODY)


def test_a_search_by_name_matches_whole_names_only() -> None:
    assert parse_search("", "charge", NOW).matches(ROW, "")
    assert not parse_search("", "charg", NOW).matches(ROW, "")


def test_only_an_empty_search_takes_everything() -> None:
    assert parse_search("  ", "", NOW).is_any
    assert not parse_search("a", "", NOW).is_any
    assert not parse_search("", "charge", NOW).is_any


@pytest.mark.parametrize("find", ["since:yesterday", "since:5x", 'until:""'])
def test_a_time_that_cannot_be_understood_is_refused_with_what_can(find: str) -> None:
    with pytest.raises(InvalidFormat, match="such as 15m"):
        parse_search(find, "", NOW)


def test_a_search_has_a_maximal_length() -> None:
    with pytest.raises(InvalidFormat, match="at most 500 characters"):
        parse_search("x" * 501, "", NOW)


def test_a_prefix_alone_is_a_word() -> None:
    assert parse_search("until:", "", NOW).words == (("", "until:"),)
