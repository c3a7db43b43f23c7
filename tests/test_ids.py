"""Random names."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from tambomq.ids import letters, names, ulid, ulids

ALPHABET = set(string.ascii_letters + string.digits)
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


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


def value(drawn: str) -> int:
    """The number that base 32 digits stand for."""
    number = 0
    for digit in drawn:
        number = number * 32 + BASE32.index(digit)
    return number


@given(st.integers(0, 2**48 - 1))
def test_a_ulid_is_26_digits_of_base_32_and_begins_with_its_time(now_ms: int) -> None:
    drawn = ulid(now_ms)
    assert len(drawn) == 26
    assert set(drawn) <= set(BASE32)
    assert value(drawn[:10]) == now_ms


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_ulids_of_different_times_sort_by_time(one_ms: int, other_ms: int) -> None:
    if one_ms != other_ms:
        assert (ulid(one_ms) < ulid(other_ms)) is (one_ms < other_ms)


def test_ulids_of_one_time_do_not_repeat_and_use_every_digit() -> None:
    drawn = [ulid(1_800_000_000_000) for _ in range(5000)]
    assert len(set(drawn)) == len(drawn)
    assert {digit for each in drawn for digit in each[10:]} == set(BASE32)
    # As the engine spells this moment.
    assert {each[:10] for each in drawn} == {"01MCC5RM00"}


@given(st.integers(0, 50))
def test_many_ulids_are_made_at_once(count: int) -> None:
    drawn = ulids(1_800_000_000_000, count)
    assert len(set(drawn)) == count
    assert all(len(each) == 26 and each.startswith("01MCC5RM00") for each in drawn)
