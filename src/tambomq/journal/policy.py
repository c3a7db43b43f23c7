"""The queues of a protocol that have a journal, and how much a journal may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal.keys import JournalKeys, check_protocol

# Bounded, since short-lived queue names must not fill memory.
_CACHED_QUEUES: Final = 4096
_LONG: Final = 256
_WILDCARD: Final = re.compile(r"([*?[])")


class JournalBounds(msgspec.Struct, frozen=True):
    """The limits of what a journal holds that readers have not committed. Raises `InvalidValue`."""

    max_entries: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    """Total size of the bodies, plus 100 bytes per entry."""

    def __post_init__(self) -> None:
        # The last committed entry stays, so a journal of one entry could never accept another.
        for what, min_value in (("max_entries", 2), ("max_bytes", 1024)):
            value = getattr(self, what)
            if type(value) is not int or not min_value <= value < 1 << 53:
                raise InvalidValue(what, value, f"a whole number, {min_value} at least")


DEFAULT_BOUNDS: Final = JournalBounds()


class JournalPolicy:
    """The queues of one protocol that have a journal, and the bounds of each journal.

    A queue has one if a pattern matches its name: ``*`` stands for any text, ``?`` for one
    character, ``[ab]`` for one of them. *within* is a prefix of their journals' names.
    Operations take ``JournalPolicy | None``; `None` means that no queue has one.
    """

    def __init__(
        self,
        protocol: str,
        patterns: Iterable[str],
        bounds: JournalBounds = DEFAULT_BOUNDS,
        *,
        within: str = "",
    ) -> None:
        """Raises `InvalidFormat` for an invalid pattern."""
        self.protocol, self.bounds = check_protocol(protocol), bounds
        self._within = within
        self.patterns = _patterns(patterns)
        self._cached: Callable[[str], JournalKeys | None] = lru_cache(_CACHED_QUEUES)(self._of)

    @classmethod
    def for_queue(
        cls, protocol: str, queue: str, option: bool | JournalBounds, *, within: str = ""
    ) -> JournalPolicy | None:
        """Return the policy by which *queue* alone has a journal, if *option* asks for one.

        *option*: whether it has, or the bounds of its journal.
        """
        if not option:
            return None
        bounds = option if isinstance(option, JournalBounds) else DEFAULT_BOUNDS
        return cls(protocol, (_WILDCARD.sub(r"[\1]", queue),), bounds, within=within)

    def of(self, queue: str) -> JournalKeys | None:
        """Return the keys of a queue's journal; `None` if it has none."""
        return self._cached(queue) if len(queue) <= _LONG else self._of(queue)

    def _of(self, queue: str) -> JournalKeys | None:
        if any(fnmatchcase(queue, pattern) for pattern in self.patterns):
            return JournalKeys(self.protocol, self._within + queue)
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the cache: Spark sends it to executors."""
        make = partial(JournalPolicy, within=self._within)
        return make, (self.protocol, self.patterns, self.bounds)


def _patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise InvalidFormat("journal", patterns, "several patterns: put it in a tuple")
    found = tuple(patterns)
    for each in found:
        if not isinstance(each, str) or not each:
            raise InvalidFormat("journal", each, "a queue's name, or a pattern such as audit-*")
    return found
