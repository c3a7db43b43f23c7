"""What lies in the server, as an independent client sees it."""

from __future__ import annotations

from typing import cast

import redis


def at_rest(db: redis.Redis) -> dict[bytes, bytes]:
    """Everything the server holds, byte for byte."""
    keys = cast("list[bytes]", db.keys())
    return {key: cast("bytes", db.dump(key)) for key in keys}
