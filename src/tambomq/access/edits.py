"""Changes to users: adding, removing and rotating, as functions of what a user was before.

A change that cannot be made raises `SettingsError`, and nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from tambomq.access.decisions import UserSet
from tambomq.access.file import Change
from tambomq.access.model import MAX_TOKENS, TokenRecord, User, check_user
from tambomq.access.ops import put_user, read_user, read_users
from tambomq.access.tokens import draw_token
from tambomq.access.wire import from_json, to_json
from tambomq.errors import InvalidFormat, SettingsError
from tambomq.store.sync import Store

_TRIES = 5


class UserStore(Protocol):
    """Where users are kept."""

    def read(self) -> dict[str, User]:
        """Return the users by name. Raises `TamboError`."""

    def change(self, name: str, change: Change) -> User | None:
        """Replace the user *name* by what *change* returns. Raises `TamboError`."""


class RedisUsers:
    """The users in the Redis of *store*."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __str__(self) -> str:
        return "the users in Redis"

    def read(self) -> dict[str, User]:
        """Return the users. Raises `SettingsError`, `StoreError`."""
        raw = self._store.run(read_users())
        return from_json(raw, str(self))

    def change(self, name: str, change: Change) -> User | None:
        """Replace the user *name* by what *change* returns. Raises `SettingsError`."""
        for _ in range(_TRIES):
            raw = self._store.run(read_user(name))
            before = from_json({name.encode(): raw}, str(self))[name] if raw else None
            after = change(before)
            text = to_json(after) if after else b""
            if text:
                users: dict[bytes, bytes] = self._store.run(read_users())
                self._check({**users, name.encode(): text})
            if self._store.run(put_user(name, raw, text)):
                return after
        raise SettingsError(f"{self}: others change {name} at the same time: try again")

    def _check(self, raw: dict[bytes, bytes]) -> None:
        # Nothing is stored that could not be read again: nobody could log in, or undo it.
        try:
            UserSet(from_json(raw, str(self)))
        except InvalidFormat as error:
            raise SettingsError(str(error)) from error


@dataclass(slots=True)
class NewToken:
    """The change that gives a user a token; *text* is the token, to be shown once."""

    now: datetime
    expires: datetime | None = None
    text: str = field(default="", repr=False)

    def record(self) -> TokenRecord:
        """Draw a token."""
        self.text, record = draw_token(self.now, self.expires)
        return record


def added(name: str, user: User, token: NewToken | None) -> Change:
    """Return the change that adds *user*."""

    def change(before: User | None) -> User:
        if before is not None:
            raise SettingsError(
                f"there is a user {name}: `tambo access rotate {name}` gives it another token, "
                f"`tambo access remove {name}` removes it"
            )
        check_user(name, user)
        return msgspec.structs.replace(user, tokens=[token.record()]) if token else user

    return change


def rotated(name: str, token: NewToken, until: datetime) -> Change:
    """Return the change that adds *token*; the newest one before is valid *until* then."""

    def change(before: User | None) -> User:
        known = existing(name, before)
        valid = [each for each in known.tokens if not each.is_expired(token.now)]
        kept = sorted(valid, key=lambda each: each.created)[-(MAX_TOKENS - 1) :]
        ending = [
            msgspec.structs.replace(each, expires=min(until, each.expires or until))
            for each in kept
            if until > token.now
        ]
        return msgspec.structs.replace(known, tokens=[*ending, token.record()])

    return change


def removed(name: str) -> Change:
    """Return the change that removes the user."""

    def change(before: User | None) -> None:
        existing(name, before)

    return change


def existing(name: str, user: User | None) -> User:
    """Return *user*. Raises `SettingsError` if there is none."""
    if user is None:
        raise SettingsError(f"there is no user {name}: `tambo access list` shows them all")
    return user
