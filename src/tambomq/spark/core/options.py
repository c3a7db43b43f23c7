"""Options of a read or write by name, validated before any connection is opened."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tambomq.errors import SettingsError
from tambomq.store.endpoint import URL, endpoint
from tambomq.store.sync import Store

_REQUIRED: Final[Any] = object()
_YES_NO: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WILD: Final = frozenset("*?[")
_JSON_LIST: Final = re.compile(r"\[\s*[\"\]]")
_MAX_DIGITS: Final = 19
_PARTITIONS, _MAX_PARTITIONS = 4, 10_000
_MAX_LETTERS: Final = 100


class SourceOptions:
    """The options of one read or write. Spark spells their names in lower case."""

    def __init__(self, source: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Refuse names that are not *known*, with the nearest that is."""
        self._source = source
        self._options = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in self._options:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = (
                    f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(known)}"
                )
                raise SettingsError(f"format {source!r}: no option {name}; {hint}")

    def text(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return the option, or *default*."""
        value = self._options.get(name.lower(), default)
        if value is _REQUIRED or value == "":
            raise SettingsError(f"format {self._source!r}: the option {name} is missing")
        return value

    def number(
        self, name: str, default: int, *, min_value: int = 1, max_value: int = 2**63 - 1
    ) -> int:
        """Return a whole number from *min_value* to *max_value*."""
        text = str(self.text(name, default))
        # Python refuses to parse very long numbers.
        readable = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
        if not readable or not min_value <= int(text) <= max_value:
            raise self.wrong(name, f"a whole number from {min_value} to {max_value}", text)
        return int(text)

    def partition_count(self) -> int:
        """Return the approximate number of tasks to read with."""
        return self.number("partitions", _PARTITIONS, max_value=_MAX_PARTITIONS)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return yes or no."""
        text = str(self.text(name, default)).lower()
        if text not in _YES_NO:
            raise self.wrong(name, "true or false", text)
        return _YES_NO[text]

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        """Return one of *words*."""
        text = str(self.text(name, default)).lower()
        if text not in words:
            raise self.wrong(name, f"one of {', '.join(words)}", text)
        return text

    def redis_target(self) -> RedisTarget:
        """Return the server to use; raise `SettingsError` for an invalid URL."""
        url = self.text("url", URL)
        endpoint(url)
        return RedisTarget(url)

    def queue_selector(self, name: str = "queue") -> QueueSelector:
        """Return the selected queues: names or patterns, separated by commas or as a JSON list."""
        text = self.text(name)
        # Otherwise a leading [ begins a character class of a pattern.
        if _JSON_LIST.match(text):
            try:
                names = json.loads(text)
            except ValueError:
                names = None
            if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
                raise self.wrong(name, "names, or a JSON list of them", text)
        else:
            names = [each.strip() for each in text.split(",")]
        if not names or "" in names:
            raise self.wrong(name, "names, or a JSON list of them", text)
        return QueueSelector(tuple(dict.fromkeys(names)))

    def wrong(self, name: str, expected: str, value: str) -> SettingsError:
        """Return the error for an option of another form than *expected*."""
        shown = value if len(value) <= _MAX_LETTERS else f"{value[:_MAX_LETTERS]}…"
        return SettingsError(f"format {self._source!r}: {name} must be {expected}, not {shown!r}")


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """The URL of a Redis server. Its repr hides the password."""

    url: str

    def open(self) -> Store:
        """Open a new store: connections cannot be sent to workers."""
        return Store(self.url)

    def open_for_renewals(self, every_s: float) -> Store:
        """Open a store for renewals *every_s*; it drops a silent connection before the next one."""
        return Store(endpoint(self.url).with_timeout(every_s / 2), patience_s=every_s)

    def __repr__(self) -> str:
        return f"RedisTarget({endpoint(self.url)})"


@dataclass(frozen=True, slots=True)
class QueueSelector:
    """The queues to read, by names and patterns."""

    patterns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The entries without wildcards."""
        return tuple(each for each in self.patterns if not _WILD.intersection(each))

    @property
    def has_patterns(self) -> bool:
        """Whether existing queues must be listed to match patterns."""
        return len(self.names) < len(self.patterns)

    def includes(self, name: str) -> bool:
        """Whether the queue *name* is selected."""
        return any(name == each or fnmatchcase(name, each) for each in self.patterns)
