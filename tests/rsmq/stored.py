"""A snapshot of the server's data, taken by an independent client."""

from __future__ import annotations

from typing import cast

import redis


def at_rest(db: redis.Redis) -> dict[bytes, bytes]:
    """Return every key with its serialized value."""
    keys = cast("list[bytes]", db.keys())
    return {key: cast("bytes", db.dump(key)) for key in keys}
