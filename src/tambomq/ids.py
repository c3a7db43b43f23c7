"""Random names, drawn from the operating system."""

from __future__ import annotations

import os
from functools import lru_cache

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
    return _moment(now_ms) + os.urandom(16).translate(_DIGITS).decode("ascii")


def ulids(now_ms: int, count: int) -> list[str]:
    """Return *count* ULIDs of the same time."""
    moment, drawn = _moment(now_ms), os.urandom(16 * count).translate(_DIGITS).decode("ascii")
    return [moment + drawn[i : i + 16] for i in range(0, 16 * count, 16)]


@lru_cache(maxsize=4)
def _moment(now_ms: int) -> str:
    return "".join(chr(_BASE32[now_ms >> shift & 31]) for shift in range(45, -1, -5))
