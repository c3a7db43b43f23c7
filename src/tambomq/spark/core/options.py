"""What a reader or writer was told: options by name, checked before anything is opened."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tambomq.errors import SettingsError
from tambomq.store.connect import URL, endpoint
from tambomq.store.sync import Store

_REQUIRED: Final[Any] = object()
_YES_NO: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WILD: Final = frozenset("*?[")
_JSON_LIST: Final = re.compile(r"\[\s*[\"\]]")
_MOST_DIGITS: Final = 19
_PARTS, _MOST_PARTS = 4, 10_000
_MOST_LETTERS: Final = 100


class Given:
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
        """Return what was said, or *default*."""
        value = self._options.get(name.lower(), default)
        if value is _REQUIRED or value == "":
            raise SettingsError(f"format {self._source!r}: the option {name} is missing")
        return value

    def number(self, name: str, default: int, *, least: int = 1, most: int = 2**63 - 1) -> int:
        """Return a whole number from *least* to *most*."""
        text = str(self.text(name, default))
        # So long a number would not even be read.
        readable = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
        if not readable or not least <= int(text) <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}", text)
        return int(text)

    def parts(self) -> int:
        """Return in about how many tasks to read."""
        return self.number("partitions", _PARTS, most=_MOST_PARTS)

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

    def place(self) -> Place:
        """Return where the server is. A URL that cannot be is refused here."""
        url = self.text("url", URL)
        endpoint(url)
        return Place(url)

    def wanted(self, name: str = "queue") -> Wanted:
        """Return which queues are meant: a name, names with commas, a JSON list, or patterns."""
        text = self.text(name)
        # Else it is a pattern that begins with a set of letters.
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
        return Wanted(tuple(dict.fromkeys(names)))

    def wrong(self, name: str, expected: str, value: str) -> SettingsError:
        """Return the error for an option of another form than *expected*."""
        shown = value if len(value) <= _MOST_LETTERS else f"{value[:_MOST_LETTERS]}…"
        return SettingsError(f"format {self._source!r}: {name} must be {expected}, not {shown!r}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is. Its password does not show."""

    url: str

    def open(self) -> Store:
        """Return a store of one's own: sockets do not travel."""
        return Store(self.url)

    def open_for_renewals(self, every_s: float) -> Store:
        """Return a store for what is renewed *every_s*: it gives up a silent connection in time."""
        return Store(endpoint(self.url).with_timeout(every_s / 2), patience_s=every_s)

    def __repr__(self) -> str:
        return f"Place({endpoint(self.url)})"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which queues are meant."""

    patterns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are named in full."""
        return tuple(each for each in self.patterns if not _WILD.intersection(each))

    @property
    def has_patterns(self) -> bool:
        """Whether one must look which there are."""
        return len(self.names) < len(self.patterns)

    def includes(self, name: str) -> bool:
        """Whether *name* is meant."""
        return any(name == each or fnmatchcase(name, each) for each in self.patterns)
