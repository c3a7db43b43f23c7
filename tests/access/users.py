"""Users for tests, with their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from tambomq.access.file import UserFile
from tambomq.access.model import Right, User
from tambomq.access.tokens import draw_token
from tambomq.access.wire import to_toml

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
YEARS = timedelta(days=36_500)


def user(
    rights: Iterable[Right], queues: Iterable[str] = ("*",), *, tls: Iterable[str] = ()
) -> User:
    """A user without a token."""
    return User(rights=list(rights), queues=list(queues), tls=list(tls))


def with_token(found: User, expires: datetime | None = None) -> tuple[User, str]:
    """The user with one more token, and that token."""
    token, record = draw_token(NOW, expires)
    return msgspec.structs.replace(found, tokens=[*found.tokens, record]), token


class Users:
    """A file of users that a test changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write()

    def add(
        self,
        name: str,
        rights: Iterable[Right] = (),
        queues: Iterable[str] = ("*",),
        *,
        tls: Iterable[str] = (),
    ) -> str:
        """Add a user, or replace it; return its token."""
        made, token = with_token(user(rights, queues, tls=tls))
        UserFile(self.path).change(name, lambda _: made)
        return token

    def remove(self, name: str) -> None:
        """Remove a user."""
        UserFile(self.path).change(name, lambda _: None)

    def _write(self) -> None:
        self.path.touch(0o600)
        self.path.write_text(to_toml({}))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def secret_of(token: str) -> str:
    """Return the part of *token* that no record may hold; it may have underscores itself."""
    return token.split("_", 2)[2]
