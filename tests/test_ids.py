"""Random names."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from tambomq.ids import letters, names

ALPHABET = set(string.ascii_letters + string.digits)


@given(st.integers(0, 500))
def test_letters_are_as_many_as_asked_for_and_all_from_the_alphabet(count: int) -> None:
    drawn = letters(count)
    assert len(drawn) == count
    assert set(drawn) <= ALPHABET


def test_every_letter_comes_up() -> None:
    assert set(letters(20_000)) == ALPHABET


@given(st.integers(0, 50), st.integers(1, 40))
def test_names_are_as_many_and_as_long_as_asked_for(count: int, length: int) -> None:
    drawn = names(count, length)
    assert len(drawn) == count
    assert {len(name) for name in drawn} <= {length}


def test_names_do_not_repeat() -> None:
    drawn = names(10_000, 22)
    assert len(set(drawn)) == len(drawn)
