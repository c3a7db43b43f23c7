"""Converts GOMQ's list elements to columns.

Nothing here raises: an element that is no message is reported in its row's ``error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tambomq.gomq.wire import Element
from tambomq.spark.formats.gomq.dates import published_ms

_decode = msgspec.json.Decoder(Element).decode


def messages(first: int, page: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return the columns of *page*; *first* is the index of its first element."""
    found = [_element(each) for each in page]
    good = [each if isinstance(each, Element) else Element() for each in found]
    wrong = [None if isinstance(each, Element) else each for each in found]
    return {
        "position": list(range(first, first + len(page))),
        "id": [each.id or None for each in good],
        "timestamp": [each.timestamp or None for each in good],
        "published_at": [published_ms(each.timestamp, each.id) for each in good],
        "payload": [
            each.payload if error is None else None for each, error in zip(good, wrong, strict=True)
        ],
        "error": wrong,
        "raw": [None if error is None else each for each, error in zip(page, wrong, strict=True)],
    }


def _element(element: bytes) -> Element | str:
    try:
        return _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"no message of GOMQ's: {error}"
