"""What is asked of Redis about users."""

from __future__ import annotations

from typing import Any, Final

from tambomq.access import keys
from tambomq.store.call import Call, load_script

_PUT: Final = load_script(__name__, "put_user")


def read_users() -> Call[dict[bytes, bytes]]:
    """Return the stored users by name."""
    return Call("HGETALL", (keys.USERS,), (), _pairs, repeatable=True)


def read_user(name: str) -> Call[bytes]:
    """Return one stored user, or nothing."""
    return Call("HGET", (keys.USERS,), (name,), lambda reply: reply or b"", repeatable=True)


def put_user(name: str, before: bytes, after: bytes) -> Call[bool]:
    """Replace a user, unless it is not stored as *before* any more; nothing means none."""
    return Call(_PUT, (keys.USERS,), (name, before, after), bool)


def _pairs(reply: Any) -> dict[bytes, bytes]:
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))
