"""The forms a setting can have: what is accepted, what it becomes, how it is described.

A value comes as TOML gave it or as text from a variable or a flag; `read` takes both. ``str(form)``
completes "expected …".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Protocol

LAST_PORT: Final = 65_535


class Form(Protocol):
    """What a value must look like."""

    metavar: str
    """The placeholder of its flag."""

    def read(self, value: object) -> Any:
        """Return the value of the setting. Raises `ValueError`."""

    def toml(self, value: Any) -> str:
        """Return *value* as TOML spells it."""


class Text:
    """Any text but the empty one."""

    metavar = "TEXT"

    def read(self, value: object) -> str:
        """Return the text."""
        if not isinstance(value, str) or not value:
            raise ValueError
        return value

    def toml(self, value: Any) -> str:
        """Return the text in quotes; JSON's are TOML's."""
        return json.dumps(str(value), ensure_ascii=False)

    def __str__(self) -> str:
        return "text"


class Url(Text):
    """A URL of one of some schemes."""

    metavar = "URL"

    def __init__(self, *schemes: str) -> None:
        self._prefixes = tuple(f"{scheme}://" for scheme in schemes)

    def read(self, value: object) -> str:
        """Return the URL; whether its host exists is not known here."""
        text = super().read(value)
        if not text.startswith(self._prefixes) or text in self._prefixes:
            raise ValueError
        return text

    def __str__(self) -> str:
        return f"a URL that begins with {_either(self._prefixes)}"


class OneOf(Text):
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = "|".join(words)

    def read(self, value: object) -> str:
        """Return the word; capitals do not matter."""
        word = super().read(value).lower()
        if word not in self.words:
            raise ValueError
        return word

    def __str__(self) -> str:
        return _either(self.words)


class Directory(Text):
    """A directory, which need not exist."""

    metavar = "DIR"

    def read(self, value: object) -> Path:  # type: ignore[override]  # reads text, gives a path
        """Return the absolute path; ``~`` is the user's home."""
        if isinstance(value, Path):
            return value.expanduser().absolute()
        return Path(super().read(value)).expanduser().absolute()

    def __str__(self) -> str:
        return "a directory"


class Port:
    """A TCP port; 0 means any free one."""

    metavar = "PORT"

    def read(self, value: object) -> int:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError  # noqa: TRY004  (one error for every wrong value)
        number = int(value)
        if not 0 <= number <= LAST_PORT:
            raise ValueError
        return number

    def toml(self, value: Any) -> str:
        """Return the number's digits."""
        return str(value)

    def __str__(self) -> str:
        return f"a port from 0 to {LAST_PORT}"


def _either(words: tuple[str, ...]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
