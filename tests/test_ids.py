"""Unique ids and random names."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import string
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from tambomq.ids import OwnNames, Xids, letters, names, ulid, ulid_ms, ulids, unique

ALPHABET = set(string.ascii_letters + string.digits)
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BASE32HEX = "0123456789abcdefghijklmnopqrstuv"


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


@given(st.integers(0, 2**48 - 1))
def test_the_time_of_a_ulid_can_be_read(now_ms: int) -> None:
    assert ulid_ms(ulid(now_ms)) == now_ms


@given(st.text() | st.text("08ILOUZé", min_size=26, max_size=26))
def test_an_invalid_ulid_has_no_time(text: str) -> None:
    is_ulid = len(text) == 26 and set(text) <= set(BASE32) and text[0] < "8"
    assert (ulid_ms(text) is None) is not is_ulid


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


def unpacked(xid: str) -> bytes:
    """The 12 bytes that an xid stands for: base 32 without its padding."""
    return base64.b32hexdecode(f"{xid.upper()}====")


@given(st.integers(0, 2**32 - 1))
def test_an_xid_is_20_digits_of_base_32_and_begins_with_its_second(now_s: int) -> None:
    drawn = Xids().next(now_s)
    assert len(drawn) == 20
    assert set(drawn) <= set(BASE32HEX)
    assert unpacked(drawn)[:4] == now_s.to_bytes(4)
    assert len(unpacked(drawn)) == 12


def test_xids_of_one_maker_count_and_sort_in_the_order_of_their_making() -> None:
    xids = Xids()
    # The count begins anywhere; it must not end in between.
    xids._count = 7
    drawn = [xids.next(1_500_365_704 + n // 100) for n in range(1000)]
    assert drawn == sorted(drawn)
    assert [int.from_bytes(unpacked(each)[9:]) for each in drawn] == list(range(8, 1008))
    assert len({unpacked(each)[4:9] for each in drawn}) == 1


def test_the_counter_wraps_to_0_after_its_maximum() -> None:
    xids = Xids()
    xids._count = 2**24 - 2
    one, two = xids.next(0), xids.next(0)
    assert unpacked(one)[9:] == b"\xff\xff\xff"
    assert unpacked(two)[9:] == b"\0\0\0"
    assert unpacked(one)[:9] == unpacked(two)[:9]


def test_two_makers_of_xids_have_nothing_in_common_but_the_time() -> None:
    drawn = [unpacked(Xids().next(7)) for _ in range(1000)]
    assert len({each[4:9] for each in drawn}) == 1000
    assert len({each[9:] for each in drawn}) > 900


# ── what belongs to one process ──────────────────────────────────────────────


def drawn_by(xids: Xids, own: OwnNames) -> set[str]:
    return {*own, xids.next(1)[7:], xids.next(1)[7:]}


def test_a_forked_child_draws_names_of_its_own() -> None:
    xids, own = Xids(), OwnNames(3)
    before = list(own)
    theirs = drawn_in_a_child(lambda: drawn_by(xids, own))
    assert own == before, "the parent keeps its own"
    assert len(theirs) == 5
    assert not theirs & drawn_by(xids, own)


def drawn_in_a_child(draw: Callable[[], set[str]]) -> set[str]:
    """Return what *draw* returns in a forked process."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(sink, " ".join(draw()).encode())
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source) as pipe:
        found = set(pipe.read().split())
    os.waitpid(child, 0)
    return found


def test_a_forked_child_draws_ulids_of_its_own() -> None:
    ulid(0)  # leaves random parts for the next ones
    theirs = drawn_in_a_child(lambda: {ulid(0) for _ in range(70)})
    assert len(theirs) == 70
    assert not theirs & {ulid(0) for _ in range(70)}


def test_threads_draw_different_ulids() -> None:
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            drawn = list(threads.map(lambda _: [ulid(0) for _ in range(1000)], range(4)))
    finally:
        sys.setswitchinterval(switch_interval_s)
    assert len({each for some in drawn for each in some}) == 4000


def test_a_copy_draws_names_of_its_own() -> None:
    xids, own = Xids(), OwnNames(3)
    mine = drawn_by(xids, own)
    pickled = pickle.dumps((xids, own))
    for theirs in (
        drawn_by(copy.copy(xids), copy.copy(own)),
        drawn_by(*copy.deepcopy((xids, own))),
        drawn_by(*pickle.loads(pickled)),  # noqa: S301  (it is our own)
    ):
        assert len(theirs) == 5
        assert not mine & theirs


def test_unique_names_differ_and_use_only_the_alphabet() -> None:
    drawn = [unique() for _ in range(10_000)]
    assert len(set(drawn)) == 10_000
    assert set("".join(drawn)) <= ALPHABET
    assert min(map(len, drawn)) > 12


FORKING = """
import os
from tambomq.ids import unique
print(unique(), flush=True)
if os.fork() == 0:
    print(unique(), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_does_not_go_on_with_the_unique_names_of_its_parent() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True)
    ours, theirs = ran.stdout.split()
    assert theirs[:12] != ours[:12]
