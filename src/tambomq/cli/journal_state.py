"""The state of a journal in the output about its queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tambomq.journal.ops import State


def journal_rows(found: State | None) -> Iterator[tuple[str, str]]:
    """Yield a row for each number; none without a journal."""
    if found is None:
        return
    yield "journal entries", str(found.entries)
    yield "journal bytes", str(found.bytes)
    yield "refused, since the journal was full", str(found.refused)
    yield "not recorded", str(found.dropped)
    for reader in found.readers:
        behind = f"{reader.lag_bytes} bytes, {reader.lag_ms} ms"
        yield f"reader {reader.name} is behind by", behind


def journal_fields(found: State | None) -> dict[str, Any]:
    """Return the fields of the JSON output; none without a journal."""
    return {} if found is None else {"journal": msgspec.to_builtins(found)}
