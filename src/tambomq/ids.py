"""Generators of unique ids: random names, ULIDs, xids, and names of this process.

Identity is drawn per process: a forked child draws its own.
"""

from __future__ import annotations

import itertools
import os
import uuid
from functools import lru_cache
from typing import Protocol
from weakref import WeakSet

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

# 256 is not a multiple of 62, so eight letters come up 5 times in 256 instead
# of 4. It costs 0.005 bit a letter; `random.choices` takes four times as long.
_LETTERS = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))


def letters(count: int) -> str:
    """Return *count* random characters of ``[A-Za-z0-9]``."""
    return os.urandom(count).translate(_LETTERS).decode("ascii")


def names(count: int, length: int) -> list[str]:
    """Return *count* random names of *length* characters each."""
    drawn = letters(count * length)
    return [drawn[i : i + length] for i in range(0, count * length, length)]


# Crockford's base 32: no I, L, O or U.
_BASE32 = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = bytes(_BASE32[byte % 32] for byte in range(256))


def ulid(now_ms: int) -> str:
    """Return a ULID: 10 characters of time, 16 random ones."""
    return _moment(now_ms) + _random_parts.next()


def ulids(now_ms: int, count: int) -> list[str]:
    """Return *count* ULIDs of the same time."""
    moment = _moment(now_ms)
    return [moment + part for part in _draw_parts(count)]


def _draw_parts(count: int) -> list[str]:
    """Return the random parts of *count* ULIDs."""
    drawn = os.urandom(16 * count).translate(_DIGITS).decode("ascii")
    return [drawn[i : i + 16] for i in range(0, 16 * count, 16)]


def ulid_ms(text: str) -> int | None:
    """Return the time of a ULID; `None` if *text* is none."""
    if len(text) != _ULID_DIGITS or not _ULID_ALPHABET.issuperset(text) or text[0] > "7":
        return None
    ms = 0
    for digit in text[:10]:
        ms = ms << 5 | _BASE32.index(digit.encode())
    return ms


_ULID_DIGITS, _ULID_ALPHABET = 26, frozenset(_BASE32.decode())


_LAST_DIGITS = [chr(tens) + chr(ones) for tens in _BASE32 for ones in _BASE32]


def _moment(now_ms: int) -> str:
    return _first_digits(now_ms >> 10) + _LAST_DIGITS[now_ms & 1023]


@lru_cache(maxsize=4)
def _first_digits(seconds: int) -> str:
    """Return the digits of a time but for the last two; they change once in 1024 ms."""
    return "".join(chr(_BASE32[seconds >> shift & 31]) for shift in range(35, -1, -5))


# ── identity of a process ────────────────────────────────────────────────────


class ProcessIdentity(Protocol):
    """An object with names that no other process may use."""

    def draw(self) -> None:
        """Draw new names."""


_of_this_process: WeakSet[ProcessIdentity] = WeakSet()


def draw_in_children(drawn: ProcessIdentity) -> None:
    """Call *drawn*.draw in each child that is forked from this process."""
    _of_this_process.add(drawn)


def _draw_again() -> None:
    for drawn in _of_this_process:
        drawn.draw()


os.register_at_fork(after_in_child=_draw_again)


class _Sequence:
    """The prefix and the counter of this process's unique names."""

    def __init__(self) -> None:
        self.draw()
        _of_this_process.add(self)

    def draw(self) -> None:
        """Draw a new prefix and restart the counter."""
        self.head, self.next = letters(12), itertools.count().__next__


_sequence = _Sequence()

_PARTS = 64
"""Random parts that are drawn together: the system call takes longer than the rest of a ULID."""


class _RandomParts:
    """The random parts of this process's next ULIDs. Safe to share between threads."""

    def __init__(self) -> None:
        self.draw()
        _of_this_process.add(self)

    def draw(self) -> None:
        """Drop what is left."""
        self._left = list[str]()

    def next(self) -> str:
        """Return a part that was not returned before."""
        left = self._left
        try:
            # Atomic: no two threads get the same.
            return left.pop()
        except IndexError:
            left += _draw_parts(_PARTS)
            return _draw_parts(1)[0]


_random_parts = _RandomParts()


def unique() -> str:
    """Return a name of 13 characters or more of ``[A-Za-z0-9]`` that no process has had before.

    It can be guessed from another one. Takes a fifth of the time of as many `letters`.
    """
    return f"{_sequence.head}{_sequence.next()}"


class OwnNames(list[str]):
    """UUIDs that no other process has: a forked child and a pickled copy draw their own."""

    # Sets of weak references need a hash; two of these are never the same.
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, count: int) -> None:
        super().__init__([""] * count)
        self.draw()
        _of_this_process.add(self)

    def draw(self) -> None:
        """Replace all names by new ones."""
        self[:] = [str(uuid.uuid4()) for _ in self]

    def __reduce__(self) -> tuple[type[OwnNames], tuple[int]]:
        return type(self), (len(self),)


# Base 32 as GOMQ's ids have it: digits, then a to v.
_BASE32HEX = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [first + second for first in _BASE32HEX for second in _BASE32HEX]


class Xids:
    """Generator of xids: ids of 20 characters that sort by the time of their creation.

    12 bytes: 4 of time, 5 of this generator, 3 of a counter.
    """

    __slots__ = ("__weakref__", "_count", "_head", "_maker", "_second", "_tail")

    def __init__(self) -> None:
        self.draw()
        _of_this_process.add(self)

    def draw(self) -> None:
        """Draw new generator bytes: a forked child would otherwise repeat its parent's ids."""
        drawn = int.from_bytes(os.urandom(8))
        self._maker, self._count = drawn >> 24 << 24, drawn & 0xFFFFFF
        self._second, self._head, self._tail = -1, "", 0

    def __reduce__(self) -> tuple[type[Xids], tuple[()]]:
        return type(self), ()

    def next(self, now_s: int) -> str:
        """Return an xid of the second *now_s*."""
        if now_s != self._second:
            self._begin(now_s)
        self._count = (self._count + 1) & 0xFFFFFF
        bits = self._tail | self._count << 4
        return self._head + _PAIRS[bits >> 20] + _PAIRS[bits >> 10 & 1023] + _PAIRS[bits & 1023]

    def _begin(self, now_s: int) -> None:
        """Prepare what all ids of a second share: the first 14 characters, and two bits."""
        # 96 bits are written as 100, the last four of them 0.
        bits = ((now_s & 0xFFFFFFFF) << 64 | self._maker) << 4
        self._second, self._tail = now_s, bits & 0x3FFFFFFF
        self._head = "".join(_PAIRS[bits >> shift & 1023] for shift in range(90, 20, -10))
