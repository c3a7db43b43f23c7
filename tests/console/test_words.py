from __future__ import annotations

import pytest

from tambomq.console.words import bytes_text, count_text, duration_text, rate_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (5, "5 s"),
        (0.42, "0.4 s"),
        (42, "42 s"),
        (60, "1 m 00 s"),
        (1084, "18 m 04 s"),
        (12_000, "3 h 20 m"),
        (90_000, "1 d 01 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_counts_have_commas_and_their_noun() -> None:
    assert (count_text(1204), count_text(1, "job"), count_text(1204, "job")) == (
        "1,204",
        "1 job",
        "1,204 jobs",
    )


def test_small_rates_and_sizes_keep_a_digit() -> None:
    assert (rate_text(0.42), rate_text(6800.4)) == ("0.4/s", "6,800/s")
    assert (bytes_text(812), bytes_text(6_500_000), bytes_text(1 << 50)) == (
        "812 B",
        "6.2 MiB",
        "1024.0 TiB",
    )
