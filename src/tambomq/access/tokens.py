"""Tokens: how they are drawn, what is kept of them, and how one is compared with what is kept.

A token is ``tambo_<id>_<secret>``: the id finds its record, the secret has 256 random bits. That is
why one SHA-256 with a salt is enough: a slow hash protects secrets that can be guessed, and would
only let callers with wrong tokens use up the server's time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import Final

from tambomq.access.model import TokenRecord
from tambomq.ids import letters

MAX_TOKEN_CHARS: Final = 256
"""Longer ones are refused before they are hashed."""

_TOKEN: Final = re.compile(r"tambo_([A-Za-z0-9]{8})_[A-Za-z0-9_-]{43}", re.ASCII)
_ID_CHARS: Final = 8
_SECRET_BYTES, _SALT_BYTES = 32, 16


def draw_token(created: datetime, expires: datetime | None = None) -> tuple[str, TokenRecord]:
    """Return a new token, and what to keep of it."""
    id = letters(_ID_CHARS)
    token = f"tambo_{id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    salt = secrets.token_hex(_SALT_BYTES)
    digest = _digest(salt, token).hex()
    return token, TokenRecord(id=id, salt=salt, hash=digest, created=created, expires=expires)


def token_id(token: str) -> str | None:
    """Return the id in *token*; `None` if it is not one of ours."""
    if len(token) > MAX_TOKEN_CHARS:
        return None
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def is_token_of(token: str, record: TokenRecord) -> bool:
    """Return whether *record* is of *token*; takes the same time for any wrong one."""
    return hmac.compare_digest(_digest(record.salt, token), bytes.fromhex(record.hash))


def _digest(salt: str, token: str) -> bytes:
    return hashlib.sha256(bytes.fromhex(salt) + token.encode("utf-8", "surrogatepass")).digest()
