"""How far a consumer group has delivered: a failover may set it back."""

from __future__ import annotations

from typing import Any

from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.store.call import Call


def last_delivered(context: ConsumerContext) -> Call[str | None]:
    """Return the last entry that the group has delivered; `None` without the group."""

    def decode(reply: list[list[Any]]) -> str | None:
        groups = (dict(zip(fields[::2], fields[1::2], strict=True)) for fields in reply)
        ids = {group[b"name"].decode(): group[b"last-delivered-id"].decode() for group in groups}
        return ids.get(context.group)

    return Call("XINFO GROUPS", (context.keys.stream,), (), decode, repeatable=True)
