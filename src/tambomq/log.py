"""Logging to stderr: text lines for people, or JSON lines with fields.

Loggers are named after their modules, ``tambomq.<module>``. `set_up` is called once, by the
process, never by a library. Passwords are masked: every text goes through `mask_url`. Untrusted
names can neither forge a line nor control a terminal: control characters are escaped, and
tracebacks are indented below their line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from tambomq.text import spelled_out

_ROOT: Final = "tambomq"
# Greedy up to the last @ of the word: a password with an @ or a / in it is still a password.
_PASSWORD: Final = re.compile(r"(://[^\s:/@]*:)\S*@")
_IN_QUERY: Final = re.compile(r"([?&](?:\w*password|token)=)[^&\s]*", re.IGNORECASE)
_INDENT: Final = "  | "
_DELETE: Final = 0x7F
# Attributes that every record has. All others are fields from `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def mask_url(text: str) -> str:
    """Return *text* with the password of every URL in it replaced by ``***``."""
    return _IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def set_up(level: str = "info", style: str = "text", stream: TextIO | None = None) -> None:
    """Write our log from *level* up, and warnings of other libraries, to *stream* (stderr).

    Calling it again replaces what the first call set up.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(_ROOT).setLevel(level.upper())


def with_fields(logger: logging.Logger, **fields: object) -> FieldLogger:
    """Return *logger* with *fields*, such as queue and consumer, added to each record."""
    return FieldLogger(logger, fields)


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records all carry the same fields, besides those of a call's ``extra``."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Add the fields to *kwargs*."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00.000 INFO    embedded.server  text``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and its traceback below."""
        name = record.name.removeprefix(_ROOT + ".")
        stamp = self.formatTime(record, "%Y-%m-%d %H:%M:%S")
        message = spelled_out(record.getMessage())
        line = f"{stamp}.{int(record.msecs):03} {record.levelname:7} {name}  {message}"
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [self.formatStack(record.stack_info)] if record.stack_info else []
        for text in below:
            line += "".join(f"\n{_INDENT}{spelled_out(each)}" for each in text.split("\n"))
        return mask_url(line)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, fields from ``extra``, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = vars(record).keys() - _STANDARD - entry.keys()
        entry |= {k: v for k, v in vars(record).items() if k in fields}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        text = json.dumps({k: _masked(v) for k, v in entry.items()}, ensure_ascii=False)
        # JSON allows other control characters unescaped, but programs that read lines may not.
        return "".join(c if c.isprintable() else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) != _DELETE else f"\\u{_DELETE:04x}"


def _masked(value: object) -> object:
    return value if isinstance(value, int | float | None) else mask_url(str(value))
