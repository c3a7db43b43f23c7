"""Redis keys of users. No other file spells one."""

from __future__ import annotations

from typing import Final

USERS: Final = "{tambo:access}:users"
"""Hash of a user's name to its `User` as JSON. Whoever may write it may do everything."""
