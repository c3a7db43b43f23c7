"""Message bodies, decoded in each way that is possible. Whatever the bytes are, nothing raises.

A body is hostile input: what is shown of it is bounded, and it stays text. Pages must escape it.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal

import msgspec

from tambomq.console.messages.model import Body
from tambomq.console.messages.phrases import size as size_text

SHOWN_BYTES: Final = 256 * 1024
"""Of a body; more is not sent to anybody."""
PARSED_BYTES: Final = 1024 * 1024
"""A longer body is not parsed: it is shown as text or hex."""
HEX_BYTES: Final = 16 * 1024
"""Shown as hex: four times as long as text."""
PREVIEW_CHARS: Final = 160

_HEX_COLUMNS: Final = 16
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, TypeError)
_MOSTLY: Final = 0.05

Encoding = Literal["json", "msgpack"]


def decode_body(data: bytes, *, size: int | None = None, prefer: Encoding = "json") -> Body:
    """Return *data* in each form that it has.

    *size* is that of the whole body if *data* is only its beginning. *prefer* says which form is
    best if several are possible: many texts are MessagePack by accident.
    """
    whole = len(data) if size is None else size
    is_parsed = len(data) == whole and whole <= PARSED_BYTES
    shown = data[:SHOWN_BYTES]
    found_json = _json(data) if is_parsed else None
    found_msgpack = _msgpack(data) if is_parsed else None
    text = _text(shown, is_cut=len(shown) < whole)
    forms: dict[Literal["json", "msgpack", "text", "hex"], str | None] = {
        prefer: found_msgpack if prefer == "msgpack" else found_json,
        "json": found_json,
        "text": text,
        "msgpack": found_msgpack,
    }
    best: Literal["json", "msgpack", "text", "hex"] = next(
        (form for form, found in forms.items() if found is not None), "hex"
    )
    long = any(found is not None and len(found) > SHOWN_BYTES for found in forms.values())
    return Body(
        size_bytes=whole,
        cut_off=whole > SHOWN_BYTES or long,
        best=best,
        json=_bounded(found_json),
        msgpack=_bounded(found_msgpack),
        text=text,
        hex=hex_dump(data[:HEX_BYTES]),
    )


def preview(data: bytes, *, size: int | None = None, prefer: Encoding = "json") -> str:
    """Return the beginning of a body in one line of printable text."""
    if not data:
        return "" if not size or size < 0 else f"({size_text(size)})"
    text = None
    if prefer == "msgpack" and (size is None or len(data) == size):
        text = _compact(data)
    if text is None:
        # The bytes between the texts of MessagePack are no text.
        errors = "ignore" if prefer == "msgpack" else "replace"
        text = data[: 4 * PREVIEW_CHARS].decode("utf-8", errors)
    line = one_line(text)
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def searched_text(data: bytes, *, is_whole: bool, prefer: Encoding = "json") -> str:
    """Return the text in which a search looks."""
    if prefer == "msgpack" and is_whole and (text := _compact(data)) is not None:
        return text
    return data.decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Return *text* with runs of spaces and unprintable characters as one space each."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def hex_dump(data: bytes) -> str:
    """Return lines of offset, bytes and printable characters."""
    lines = []
    for first in range(0, len(data), _HEX_COLUMNS):
        row = data[first : first + _HEX_COLUMNS]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)  # noqa: PLR2004  (printable ASCII)
        lines.append(f"{first:08x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def _bounded(text: str | None) -> str | None:
    return None if text is None else text[:SHOWN_BYTES]


def _json(data: bytes) -> str | None:
    try:
        msgspec.json.decode(data)
        # Formats the bytes themselves: numbers and repeated keys stay as they are written.
        return msgspec.json.format(data, indent=2).decode()
    except _UNREADABLE:
        return None


def _msgpack(data: bytes) -> str | None:
    try:
        return json.dumps(plain(msgspec.msgpack.decode(data)), indent=2, ensure_ascii=False)
    except _UNREADABLE:
        return None


def _compact(data: bytes) -> str | None:
    try:
        return json.dumps(plain(msgspec.msgpack.decode(data)), ensure_ascii=False)
    except _UNREADABLE:
        return None


def plain(value: Any) -> Any:
    """Return a MessagePack value with what JSON has no form for as text."""
    match value:
        case dict():
            return {
                key if isinstance(key, str) else _shown(key): plain(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [plain(each) for each in value]
        case str() | bool() | int() | float() | None:
            return value
    return _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, msgspec.msgpack.Ext):
        return f"ext {value.code}: {base64.b64encode(value.data).decode()}"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"base64: {base64.b64encode(value).decode()}"
    return str(value)


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return *data* as text; `None` if it is not UTF-8, or mostly control characters."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # A cut may be inside a character.
        if not is_cut or error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    controls = sum(not (c.isprintable() or c.isspace()) for c in text[:4096])
    return None if controls > max(8, _MOSTLY * len(text[:4096])) and "\0" in text else text
