"""RSMQ messages and times in the output: rows for people, objects for JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from tambomq.cli.output import emit_json, emit_table
from tambomq.cli.rsmq.client import server_time_ms
from tambomq.rsmq import Message, QueueBounds

PREVIEW_LENGTH: Final = 60
_SECOND_MS: Final = 1000
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def duration(ms: int) -> str:
    """Return *ms* as people say it: ``250 ms``, ``29 s``, ``3 min``."""
    for unit, size in _UNITS:
        # 90 s and 36 h say more than 1 min and 1 d.
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms} ms" if ms < _SECOND_MS else "1 s"


def bounds_rows(found: QueueBounds) -> list[tuple[str, str]]:
    """Return the bounds of a queue as a table's rows, with what they have done if there are any."""
    ttl = duration(round(found.message_ttl_s * 1000)) if found.message_ttl_s > 0 else "none"
    rows = [
        ("most messages", str(found.max_messages) if found.max_messages > 0 else "no bound"),
        ("most bytes", str(found.max_bytes) if found.max_bytes > 0 else "no bound"),
        ("messages expire after", ttl),
    ]
    if found.any:
        rows += [
            (
                "what does not fit",
                "is refused" if found.overflow == "refuse" else "is dead-lettered",
            ),
            ("dead-letter queue", found.dead),
            ("refused so far", str(found.refused)),
            ("dead-lettered because full", str(found.overflowed)),
            ("expired", str(found.expired)),
        ]
    if found.max_bytes > 0:
        rows.insert(2, ("bytes counted", str(found.bytes)))
    return rows


def state(message: Message, now_ms: int) -> str:
    """Return the state of a message at *now_ms*: why it can be received or not."""
    if message.visible_at <= now_ms:
        return "visible"
    return "hidden" if message.rc else "delayed"


def show_received(messages: Sequence[Message], *, popped: bool, as_base64: bool) -> None:
    """Print a table of messages as they were handed out."""
    now = server_time_ms()
    columns = ["id", "received", "sent", "body"]
    rows = [
        [m.id, _times(m.rc), _ago(_sent(m), now), _body(m, as_base64=as_base64)] for m in messages
    ]
    if not popped:
        columns.insert(3, "visible again")
        for row, message in zip(rows, messages, strict=True):
            row.insert(3, _until(message.visible_at, now))
    emit_table(columns, rows)


def show_peeked(messages: Sequence[Message], *, as_base64: bool) -> None:
    """Print a table of messages as they lie there; bodies are cut."""
    now = server_time_ms()
    buried = any(m.reason is not None for m in messages)
    columns = [
        "id",
        "state",
        "visible",
        "received",
        "sent",
        *(["reason"] if buried else []),
        "body",
    ]
    rows = [
        [
            m.id,
            state(m, now),
            _until(m.visible_at, now),
            _times(m.rc),
            _ago(_sent(m), now),
            *([m.reason] if buried else []),
            _preview(m, as_base64=as_base64),
        ]
        for m in messages
    ]
    emit_table(columns, rows)


def message_object(message: Message, *, as_base64: bool) -> dict[str, object]:
    """Return a message as programs get it; times are epoch milliseconds."""
    return {
        "id": message.id,
        "body": _body(message, as_base64=as_base64),
        "rc": message.rc,
        "fr": message.fr,
        "sent": _sent(message),
        "visible_at": message.visible_at,
    }


def emit_peeked(messages: Sequence[Message], *, as_base64: bool) -> None:
    """Print messages as they lie there, for programs."""
    now = server_time_ms()
    emit_json(
        [
            {
                **message_object(m, as_base64=as_base64),
                "state": state(m, now),
                "visible_in_ms": max(0, m.visible_at - now),
                "reason": m.reason,
                "traceback": m.traceback,
            }
            for m in messages
        ]
    )


def _body(message: Message, *, as_base64: bool) -> str | bytes:
    return base64.b64encode(message.body).decode() if as_base64 else message.body


def _preview(message: Message, *, as_base64: bool) -> str:
    body = _body(message, as_base64=as_base64)
    text = body if isinstance(body, str) else body.decode(errors="backslashreplace")
    return text if len(text) <= PREVIEW_LENGTH else text[: PREVIEW_LENGTH - 1] + "…"


def _sent(message: Message) -> int | None:
    return message.sent or None


def _ago(then_ms: int | None, now_ms: int) -> str | None:
    return None if then_ms is None else f"{duration(max(0, now_ms - then_ms))} ago"


def _until(then_ms: int, now_ms: int) -> str:
    return "now" if then_ms <= now_ms else f"in {duration(then_ms - now_ms)}"


def _times(rc: int) -> str:
    return {0: "never", 1: "once"}.get(rc, f"{rc} times")
