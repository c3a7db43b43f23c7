"""Which queues have a journal, and how a call becomes one that is recorded.

A script has a journalled twin: the same text, run as a function, with some keys and arguments
more. What it stores and what the journal says of it are one atomic step. The script itself stays
as it is, so a queue without a journal pays nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from importlib import resources
from typing import Any, Final, TypeVar

import msgspec

from tambomq.errors import InvalidFormat, InvalidValue, JournalFull
from tambomq.journal.keys import Keys, check_protocol
from tambomq.store.call import Arg, Call, Script

T = TypeVar("T")

# Names that come and go must not make anything grow.
_KNOWN: Final = 4096
_LONG: Final = 256
_OWN: Final = "tambomq.journal"


class Bounds(msgspec.Struct, frozen=True):
    """How much a journal holds that no reader has committed. Raises `InvalidValue`."""

    max_entries: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    """Of bodies, with 100 more for each entry."""

    def __post_init__(self) -> None:
        # The last entry that was read stays, so with room for one alone nothing would ever fit.
        for what, least in (("max_entries", 2), ("max_bytes", 1024)):
            value = getattr(self, what)
            if type(value) is not int or not least <= value < 1 << 53:
                raise InvalidValue(what, value, f"a whole number, {least} at least")


BOUNDS: Final = Bounds()


def bounds_of(journal: bool | Bounds) -> Bounds | None:
    """Return the bounds that an option asks for: its own, the usual ones, or no journal."""
    if isinstance(journal, Bounds):
        return journal
    return BOUNDS if journal else None


class Recording:
    """The queues of one protocol that have a journal: those that a pattern matches.

    In a pattern ``*`` stands for any text, ``?`` for one character, ``[ab]`` for one of them.
    *within* comes before the names of their journals.
    """

    def __init__(
        self,
        protocol: str,
        patterns: Iterable[str],
        bounds: Bounds = BOUNDS,
        *,
        within: str = "",
    ) -> None:
        """Raises `InvalidFormat` for what is no pattern."""
        self.protocol, self.bounds = check_protocol(protocol), bounds
        self._within = within
        self.patterns = _patterns(patterns)
        self._known: Callable[[str], Keys | None] = lru_cache(_KNOWN)(self._of)

    def of(self, queue: str) -> Keys | None:
        """Return the keys of a queue's journal; `None` if it has none."""
        return self._known(queue) if len(queue) <= _LONG else self._of(queue)

    def _of(self, queue: str) -> Keys | None:
        if any(fnmatchcase(queue, pattern) for pattern in self.patterns):
            return Keys(self.protocol, self._within + queue)
        return None


def twin(script: Script, package: str, *parts: str, extra: bool = False) -> Script:
    """Return the journalled twin of *script*; *parts* of *package* say what it is to record.

    *extra*: the twin is given words that the script has no use for.
    """
    shebang, body = _headed(script)
    told = [_part(package, name) for name in parts]
    if extra:
        told.insert(0, _part(_OWN, "extra"))
    head = (shebang + _part(_OWN, "account"), _part(_OWN, "watched"), *told)
    return _named(script.name, *head, "local function work()", body, "end", _part(_OWN, "finish"))


def accounting(script: Script, *parts: str) -> Script:
    """Return *script* with the functions before it that write into a journal, and *parts* here."""
    shebang, body = _headed(script)
    more = (_part(_OWN, name) for name in parts)
    return _named(script.name, shebang + _part(_OWN, "account"), *more, body)


def recorded(
    call: Call[T],
    script: Script,
    keys: Keys,
    bounds: Bounds,
    *,
    entries: int = 0,
    size: int = 0,
    extra: Sequence[Arg] | None = None,
) -> Call[T]:
    """Return *call* as it is made by *script*, its twin.

    It stores *entries* with *size* bytes in all, or raises `JournalFull` and stores nothing; what
    is only told, such as a receive, is left out of a full journal and counted. *extra* is for twins
    that are given some.
    """
    words = () if extra is None else (*extra, len(extra))
    return Call(
        script,
        (*call.keys, keys.journal, keys.state),
        (*call.args, *words, bounds.max_entries, bounds.max_bytes, entries, size),
        partial(_unwrapped, keys, bounds, call.decode),
        call.repeatable,
    )


def beside(keys: Keys, key: str) -> Call[int]:
    """Raise `StoreError` where one step cannot write to *key* and to the journal: on a cluster."""
    return Call("EXISTS", (key, keys.journal, keys.state), (), int, repeatable=True)


def _part(package: str, name: str) -> str:
    return resources.files(package).joinpath("scripts", "parts", f"{name}.lua").read_text("utf-8")


def _headed(script: Script) -> tuple[str, str]:
    """Return the shebang of *script*, if it has one, and the rest."""
    head, rest = script.source.split("\n", 1)
    return (f"{head}\n", rest) if head.startswith("#!") else ("", script.source)


def _named(name: str, *texts: str) -> Script:
    source = "\n".join(texts)
    # Redis names a script by its SHA-1; nothing here is a secret.
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _unwrapped(keys: Keys, bounds: Bounds, decode: Callable[[Any], T], reply: list[Any]) -> T:
    if not reply[0]:
        raise JournalFull(keys.queue, bounds.max_entries, bounds.max_bytes)
    # Nothing, as a script answers it, ends an array.
    return decode(reply[1] if len(reply) > 1 else None)


def _patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise InvalidFormat("journal", patterns, "several patterns: put it in a tuple")
    found = tuple(patterns)
    for each in found:
        if not isinstance(each, str) or not each:
            raise InvalidFormat("journal", each, "a queue's name, or a pattern such as audit-*")
    return found
