"""What a search for messages looks for. No Redis.

A search is words, all of which must match, in any case of letters. ``"two words"`` is one. A word
matches the id, the name, the error, or the part of the body that was read. With a prefix it
matches only that: ``id:``, ``name:``, ``error:``, ``body:``. ``since:`` and ``until:`` take a
duration before now (``15m``) or a time in UTC (``2030-01-31T09:00``), and compare with when the
message died or ended, else with when it was added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from tambomq.console.messages.model import MessageRow
from tambomq.errors import InvalidFormat

MAX_CHARS: Final = 500

_WORD: Final = re.compile(r'(?:(id|name|error|body|since|until):)?(?:"([^"]*)"|(\S+))', re.DOTALL)
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RULE: Final = "a duration before now such as 15m or 2h, or a time such as 2030-01-31T09:00 (UTC)"


class MessageSelector(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a search wants."""

    words: tuple[tuple[str, str], ...] = ()
    """What each must match ('' for anything) and a word in lower case."""
    since_ms: int | None = None
    until_ms: int | None = None
    name: str = ""
    """The exact name; '' for any."""

    @property
    def is_any(self) -> bool:
        """Whether every message matches."""
        return self == _ANY

    def matches(self, row: MessageRow, body: str) -> bool:
        """Whether a message with this *body*, as far as it was read, is wanted."""
        if self.name and row.name != self.name:
            return False
        at_ms = next((ms for ms in (row.died_ms, row.ended_ms, row.added_ms) if ms is not None), 0)
        if self.since_ms is not None and at_ms < self.since_ms:
            return False
        if self.until_ms is not None and at_ms > self.until_ms:
            return False
        texts = {
            "id": row.id.lower(),
            "name": (row.name or "").lower(),
            "error": (row.error or "").lower(),
            "body": body.lower() if self.words else "",
        }
        return all(
            _is_in(word, [texts[part]] if part else texts.values()) for part, word in self.words
        )


_ANY: Final = MessageSelector()


def parse_search(find: str, name: str, now_ms: int) -> MessageSelector:
    """Return what *find* and the exact *name* select; raise `InvalidFormat`."""
    if len(find) > MAX_CHARS:
        raise InvalidFormat("search", f"{find[:20]}…", f"at most {MAX_CHARS} characters")
    words: list[tuple[str, str]] = []
    times: dict[str, int] = {}
    for part, quoted, bare in _WORD.findall(find):
        word = quoted or bare
        if part in ("since", "until"):
            times[part] = _time(part, word, now_ms)
        elif word:
            words.append((part, word.lower()))
    return MessageSelector(
        words=tuple(words), since_ms=times.get("since"), until_ms=times.get("until"), name=name
    )


def _is_in(word: str, texts: Iterable[str]) -> bool:
    return any(word in text for text in texts)


def _time(what: str, text: str, now_ms: int) -> int:
    if match := _DURATION.fullmatch(text):
        return now_ms - int(float(match[1]) * _UNITS_MS[match[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidFormat(f"{what}:", text, _RULE) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
