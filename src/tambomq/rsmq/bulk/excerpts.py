"""Read-only calls of single RSMQ messages and of pages of them, without whole large bodies."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from tambomq.bulk.excerpts import BYTES, PAGE
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.messages import reason_of
from tambomq.rsmq.ops.replies import id_arg, id_text, require_queue, score_to_ms, to_count
from tambomq.store.call import Call, load_script

MAX_CLAIMED: Final = 5_000
"""Messages of a claim that are looked at."""

_EXCERPTS = load_script("tambomq.rsmq.bulk", "excerpts")
_DETAIL = load_script("tambomq.rsmq.bulk", "detail")


class MessageExcerpt(msgspec.Struct, frozen=True):
    """A message with the beginning of its body."""

    id: str
    score: str
    """As Redis writes it: the exact place of the message in its queue."""
    visible_at_ms: int
    head: bytes
    size: int
    """Of the body; -1 if it has none."""
    rc: int
    fr_ms: int
    reason: str | None
    traceback: str | None
    received_ms: int | None
    """When it was received last, if the client wrote a delivery record."""
    hidden_s: float | None
    """The visibility timeout of that receive."""
    rank: int | None = None
    """How many messages are or become visible before it; only `detail` knows."""


def page(
    keys: Keys,
    queue: str,
    low: str,
    high: str,
    skip: int,
    count: int = PAGE,
    *,
    newest_first: bool = False,
    ends: int = BYTES,
) -> Call[list[MessageExcerpt]]:
    """Return messages with scores from *low* to *high*, skipping the first *skip*.

    Raises `QueueNotFound`.
    """
    bounds = (high, low, "REV") if newest_first else (low, high, "")
    args = (*bounds, skip, count, ends)
    decode = partial(_page, queue)
    return Call(_EXCERPTS, keys.all_of(queue), args, decode, repeatable=True)


def detail(keys: Keys, queue: str, id: str, shown: int) -> Call[MessageExcerpt | None]:
    """Return one message with up to *shown* bytes of its body; `None` if there is none.

    Raises `QueueNotFound`.
    """
    args = (id_arg(id), shown)
    decode = partial(_detail, queue)
    return Call(_DETAIL, keys.all_of(queue), args, decode, repeatable=True)


def claimed(keys: Keys, queue: str, lease: str) -> Call[set[str]]:
    """Return the ids of the first `MAX_CLAIMED` messages that a lease has claimed."""
    range_ = (0, MAX_CLAIMED - 1)
    return Call("LRANGE", (keys.members(queue, lease),), range_, _claimed, repeatable=True)


def _claimed(members: list[bytes]) -> set[str]:
    return {id_text(member.split(b" ", 2)[-1]) for member in members}


def _page(queue: str, reply: Any) -> list[MessageExcerpt]:
    return [_message(row) for row in require_queue(queue, reply)]


def _detail(queue: str, reply: Any) -> MessageExcerpt | None:
    found = require_queue(queue, reply)
    return _message(found[:8], found[8]) if found else None


def _message(row: list[Any], rank: int | None = None) -> MessageExcerpt:
    id, score, size, head, rc, fr, why, record = row
    reason, trace = (None, None) if why is None else reason_of(why)
    received_ms, hidden_s = _delivery(record)
    return MessageExcerpt(
        id=id_text(id),
        score=score.decode(),
        visible_at_ms=score_to_ms(score),
        head=head or b"",
        size=size,
        rc=to_count(rc),
        fr_ms=to_count(fr),
        reason=reason,
        traceback=trace,
        received_ms=received_ms,
        hidden_s=hidden_s,
        rank=rank,
    )


def _delivery(record: bytes | None) -> tuple[int | None, float | None]:
    """Return when a message was received, and for how long it was hidden, from its record."""
    try:
        _, at, hidden = (record or b"").split(b" ")
        # Microseconds are written without leading zeros.
        seconds, _, micros = at.partition(b".")
        return int(seconds) * 1000 + int(micros) // 1000, float(hidden)
    except (ValueError, OverflowError):
        return None, None
