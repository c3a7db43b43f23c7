"""The types of settings: what each accepts, how it is parsed, and how it is described.

A value comes as TOML gave it or as text from a variable or a flag; `read` takes both. ``str(form)``
completes "expected …".
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from pathlib import Path
from typing import Any, Final, Protocol

LAST_PORT: Final = 65_535

_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([KMG]iB|B)?", re.IGNORECASE)
_UNITS: Final = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_TOKEN: Final = re.compile(r"[!-~]+")
_WORDS: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class ValueType(Protocol):
    """A type of setting: how its values are parsed and written."""

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
        """Return the URL; its host is not looked up."""
        text = super().read(value)
        if not text.startswith(self._prefixes) or text in self._prefixes:
            raise ValueError
        return text

    def __str__(self) -> str:
        return f"a URL that begins with {_either(self._prefixes)}"


class EnumText(Text):
    """One of several words."""

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


class Host(Text):
    """Where to listen: a name or an address."""

    metavar = "HOST"

    def read(self, value: object) -> str:
        """Return the host; an IPv6 address loses its brackets."""
        text = super().read(value)
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        if ":" in bare:
            ipaddress.IPv6Address(bare)
        elif bare != text or _HOST_NAME.fullmatch(text) is None:
            raise ValueError
        return bare

    def __str__(self) -> str:
        return "a host name or address"


class Secret(Text):
    """A token that is never shown: not in errors, not in help, not in examples."""

    metavar = "TOKEN"

    def read(self, value: object) -> str:
        """Return the token."""
        text = super().read(value)
        if _TOKEN.fullmatch(text) is None:
            raise ValueError
        return text

    def toml(self, value: Any) -> str:
        """Return dots in quotes, whatever *value* is."""
        del value
        return '"…"'

    def __str__(self) -> str:
        return "a token of visible ASCII characters"


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


class File(Directory):
    """A file; it is not opened until it is needed."""

    metavar = "FILE"

    def __str__(self) -> str:
        return "a file"


class Flag:
    """On or off."""

    metavar = ""

    def read(self, value: object) -> bool:
        """Return whether it is on; a variable may say it in one of several words."""
        if isinstance(value, bool):
            return value
        if not isinstance(value, str) or value.lower() not in _WORDS:
            raise ValueError
        return _WORDS[value.lower()]

    def toml(self, value: Any) -> str:
        """Return TOML's word for it."""
        return "true" if value else "false"

    def __str__(self) -> str:
        return "true or false"


class Names:
    """Names: a TOML array, a repeated flag, or a variable with commas between them."""

    metavar = "NAME"

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names, each once, in their order."""
        each = value.split(",") if isinstance(value, str) else value
        if not isinstance(each, list | tuple):
            raise ValueError  # noqa: TRY004  (one error for every wrong value)
        if isinstance(value, str):
            each = [name.strip() for name in each]
        return tuple(dict.fromkeys(Text().read(name) for name in each))

    def toml(self, value: Any) -> str:
        """Return an array."""
        return f"[{', '.join(Text().toml(name) for name in value)}]"

    def __str__(self) -> str:
        return "names"


class Count:
    """A whole number in a range."""

    metavar = "COUNT"

    def __init__(self, min_value: int, max_value: int) -> None:
        self._min, self._max = min_value, max_value

    def read(self, value: object) -> int:
        """Return the number."""
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        return self._checked(value)

    def toml(self, value: Any) -> str:
        """Return the number's digits."""
        return str(value)

    def __str__(self) -> str:
        return f"a whole number from {self._min} to {self._max}"

    def _checked(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError  # noqa: TRY004  (one error for every wrong value)
        if not self._min <= value <= self._max:
            raise ValueError
        return value


class Port(Count):
    """A TCP port; 0 means any free one."""

    metavar = "PORT"

    def __init__(self) -> None:
        super().__init__(0, LAST_PORT)

    def __str__(self) -> str:
        return f"a port from 0 to {LAST_PORT}"


class Size(Count):
    """A number of bytes, plain or with a unit."""

    metavar = "SIZE"

    def read(self, value: object) -> int:
        """Return the bytes."""
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            value = int(match[1]) * _UNITS[(match[2] or "B").lower()]
        return self._checked(value)

    def toml(self, value: Any) -> str:
        """Return it in the largest unit that gives a whole number."""
        for unit in ("GiB", "MiB", "KiB"):
            if value and value % _UNITS[unit.lower()] == 0:
                return f'"{value // _UNITS[unit.lower()]}{unit}"'
        return str(value)

    def __str__(self) -> str:
        min_value, max_value = (self.toml(each).strip('"') for each in (self._min, self._max))
        return f"a number of bytes such as 65536, 64KiB or 8MiB, from {min_value} to {max_value}"


class Seconds:
    """A positive number of seconds; fractions are allowed. With *zero*, 0 stands for none."""

    metavar = "SECONDS"

    def __init__(self, max_value: float = 86_400.0, *, zero: bool = False) -> None:
        self._max, self._zero = max_value, zero

    def read(self, value: object) -> float:
        """Return the seconds."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError  # noqa: TRY004  (one error for every wrong value)
        seconds = float(value)
        is_positive = seconds > 0 or (self._zero and seconds == 0)
        if not math.isfinite(seconds) or not is_positive or seconds > self._max:
            raise ValueError
        return seconds

    def toml(self, value: Any) -> str:
        """Return the number, without a fraction of zero."""
        return f"{value:g}"

    def __str__(self) -> str:
        lowest = "from 0" if self._zero else "above 0 and"
        return f"a number of seconds, {lowest} up to {self._max:g}"


def _either(words: tuple[str, ...]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
