"""What the process tells while it works: on stderr, for people or as JSON lines.

Loggers are named after their modules, ``tambomq.<module>``. `set_up` is called once, by the
process, never by a library. No password leaves through here: every text goes through `mask_url`.
Nor can what somebody else named or wrote look like a line of ours, or steer a terminal: control
characters are spelled out, and what belongs to a record stands indented below its line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from tambomq.text import spelled_out

_ROOT: Final = "tambomq"
# Greedy up to the last @ of the word: a password with an @ or a / in it is still a password.
_PASSWORD: Final = re.compile(r"(://[^\s:/@]*:)\S*@")
_IN_QUERY: Final = re.compile(r"([?&](?:password|token)=)[^&\s]*", re.IGNORECASE)
_INDENT: Final = "  | "
_DELETE: Final = 0x7F
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def mask_url(text: str) -> str:
    """Return *text* with the password of every URL in it replaced by ``***``."""
    return _IN_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1***@", text))


def set_up(level: str = "info", style: str = "text", stream: TextIO | None = None) -> None:
    """Send our log from *level* up, and other libraries' warnings, to *stream* (stderr).

    Calling it again replaces what the first call set up.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else Lines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(_ROOT).setLevel(level.upper())


class Lines(logging.Formatter):
    """``2026-01-31 12:00:00.000 INFO    store.embedded  text``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and its traceback below."""
        name = record.name.removeprefix(_ROOT + ".")
        stamp = self.formatTime(record, "%Y-%m-%d %H:%M:%S")
        said = spelled_out(record.getMessage())
        line = f"{stamp}.{int(record.msecs):03} {record.levelname:7} {name}  {said}"
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [self.formatStack(record.stack_info)] if record.stack_info else []
        for text in below:
            line += "".join(f"\n{_INDENT}{spelled_out(each)}" for each in text.split("\n"))
        return mask_url(line)


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, whatever ``extra`` gave, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        text = json.dumps({k: _masked(v) for k, v in entry.items()}, ensure_ascii=False)
        # Beyond the first 32, JSON may have them as they are, and readers of lines may not.
        return "".join(c if c.isprintable() else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) != _DELETE else f"\\u{_DELETE:04x}"


def _masked(value: object) -> object:
    return value if isinstance(value, int | float | None) else mask_url(str(value))
