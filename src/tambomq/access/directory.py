"""`UserDirectory`: the users that a server knows, read again when their store changes.

While the store cannot be read, or holds what is not valid, the users are those that were read last;
tokens expire all the same. At the start there are none yet, so that is an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from tambomq.access.decisions import EVERYTHING, Credential, Grant, UserSet
from tambomq.access.denials import Denials
from tambomq.access.file import UserFile
from tambomq.access.model import Right, User
from tambomq.access.ops import read_users
from tambomq.access.wire import from_json
from tambomq.errors import (
    AccessDenied,
    AccessError,
    InvalidFormat,
    NotAuthenticated,
    SettingsError,
    TamboError,
)
from tambomq.runtime.background import keep_running
from tambomq.store.aio import AsyncStore

POLL_EVERY_S: Final = 1.0
_CACHED_TOKENS: Final = 4096
_MAX_SHOWN: Final = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Where the users are: in a file, with *redis* in the Redis of the server, or nowhere."""

    file: str | None = None
    redis: bool = False

    @property
    def is_on(self) -> bool:
        """Whether callers need a user."""
        return self.file is not None or self.redis


NO_ACCESS: Final = AccessOptions()


class _UserSource(Protocol):
    """A store of users, as a directory reads it."""

    async def read(self) -> UserSet | None:
        """Return the users, `None` if they are as they were last returned. Raises `TamboError`."""


class _FileSource:
    def __init__(self, path: str) -> None:
        self._file, self._version = UserFile(Path(path)), object()

    async def read(self) -> UserSet | None:
        # Before the text: a change in between is seen at the next call.
        version = self._file.version()
        if version == self._version:
            return None
        # Thousands of users take seconds.
        users = await asyncio.to_thread(lambda: _valid(self._file.read()))
        # Not before: what could not be read is to be read again.
        self._version = version
        return users


class _RedisSource:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._raw: dict[bytes, bytes] | None = None

    async def read(self) -> UserSet | None:
        raw = await self._store.run(read_users())
        if raw == self._raw:
            return None
        users = await asyncio.to_thread(lambda: _valid(from_json(raw, "the users in Redis")))
        self._raw = raw
        return users


def _valid(users: dict[str, User]) -> UserSet:
    try:
        return UserSet(users)
    except InvalidFormat as error:
        raise SettingsError(f"the users are not valid: {error}") from error


class UserDirectory:
    """The users of a server and their sessions. *now* is the clock by which tokens expire.

    *service* is the name of the server in the log of denied calls. It closes a *store* that it owns
    when it stops.
    """

    def __init__(
        self,
        service: str,
        options: AccessOptions,
        store: AsyncStore | None = None,
        *,
        owns_store: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if options.file is None and store is None:
            raise SettingsError("users in Redis need a server: name it, or use a file")
        self._source: _UserSource = (
            _FileSource(options.file) if options.file else _RedisSource(store)  # type: ignore[arg-type]  # it is there, as was checked
        )
        self._owned_store = store if owns_store else None
        self._now, self._users = now, UserSet({})
        self._cached: dict[str, UserSession] = {}
        self._polling: asyncio.Task[None] | None = None
        self.generation = 0
        """Counts the changes of the users."""
        self.denials = Denials(service)
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of the users."""

    async def start(self) -> None:
        """Read the users, and again when they change. Raises `SettingsError`, `StoreError`."""
        await self.refresh()
        if self._polling is None:
            self._polling = asyncio.ensure_future(keep_running(self._poll))

    async def stop(self) -> None:
        """Stop reading; the users stay as they are."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
        if self._owned_store is not None:
            await self._owned_store.close()

    async def refresh(self) -> None:
        """Read the users if they have changed. Raises `SettingsError`, `StoreError`."""
        if (found := await self._source.read()) is None:
            return
        self._users = found
        self.generation += 1
        self._cached.clear()
        self.on_change()

    def log_in(self, token: str) -> UserSession:
        """Return the session of the user that has *token*. Raises `NotAuthenticated`.

        Valid tokens are kept in memory until the users change, so that a call costs no hash. There
        is no such entry for a wrong token: those cannot fill the memory.
        """
        session = self._cached.get(token)
        if session is None:
            credential = self._users.by_token(token, self._now())
            session = UserSession(self, credential)
            if len(self._cached) < _CACHED_TOKENS:
                self._cached[token] = session
        session.check()
        return session

    def log_in_by(self, identities: Iterable[str]) -> UserSession:
        """Return the session of the user of a certificate. Raises `NotAuthenticated`."""
        return UserSession(self, self._users.by_identities(identities))

    def everything(self) -> UserSession:
        """Return a session with all rights: of a token in the settings."""
        return self.fixed(EVERYTHING)

    def fixed(self, grant: Grant) -> UserSession:
        """Return a session with *grant*, which does not depend on the users."""
        return UserSession(self, Credential(grant, is_fixed=True))

    def renewed(self, credential: Credential) -> Credential:
        """Return *credential* as the users are now. Raises `NotAuthenticated`."""
        return self._users.renewed(credential)

    def is_expired(self, credential: Credential) -> bool:
        """Return whether the token of *credential* has expired."""
        return credential.expires is not None and credential.is_expired(self._now())

    async def _poll(self) -> None:
        problem = ""
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            try:
                await self.refresh()
            except TamboError as error:
                # Once for each reason: it may last.
                if problem != str(error):
                    problem = str(error)
                    _log.error("the users are still those that were read before: %s", problem)
            else:
                problem = ""


class UserSession:
    """A caller that is known, for one call or for a connection.

    Every check is against the users as they are now: who was removed, or whose token has expired,
    loses what it had.
    """

    __slots__ = ("_credential", "_directory", "_generation", "changes")

    def __init__(self, directory: UserDirectory, credential: Credential) -> None:
        self._directory, self._credential = directory, credential
        self._generation = directory.generation
        self.changes = 0
        """How often `check` has found that the user may do other things than before."""

    @property
    def user(self) -> str:
        """The user's name."""
        return self._credential.grant.name

    def check(self) -> None:
        """Raise `NotAuthenticated` if the user or the token is no longer valid."""
        directory = self._directory
        if self._generation != directory.generation:
            before, self._credential = self._credential, directory.renewed(self._credential)
            self.changes += not self._credential.grant.is_same(before.grant)
            self._generation = directory.generation
        if directory.is_expired(self._credential):
            raise NotAuthenticated(f"the token of {self.user} has expired")

    def allows(self, right: Right, protocol: str, queue: str) -> bool:
        """Return whether the user has *right* on *queue*; false for one that is gone."""
        try:
            self.check()
        except NotAuthenticated:
            return False
        return self._credential.grant.allows(right, protocol, queue)

    def allows_all(self, right: Right, protocol: str = "") -> bool:
        """Return whether the user has *right* on every queue, of *protocol* or of all."""
        try:
            self.check()
        except NotAuthenticated:
            return False
        return self._credential.grant.allows_all(right, protocol)

    def has_right(self, right: Right) -> bool:
        """Return whether the user has *right* on some queues."""
        return right in self._credential.grant.rights

    def allows_any(self, right: Right, protocol: str) -> bool:
        """Return whether the user has *right* on any queue of *protocol*."""
        try:
            self.check()
        except NotAuthenticated:
            return False
        return self._credential.grant.allows_any(right, protocol)

    def require(self, right: Right, protocol: str, queue: str) -> None:
        """Raise `AccessDenied` unless the user has *right* on *queue*; `NotAuthenticated`."""
        self.check()
        if not self._credential.grant.allows(right, protocol, queue):
            # The name is the caller's: it goes to the log, and nothing has checked its length.
            shown = queue if len(queue) <= _MAX_SHOWN else f"{queue[:_MAX_SHOWN]}…"
            raise AccessDenied(self.user, right, f"{protocol}:{shown}")

    def require_any(self, right: Right, protocol: str) -> None:
        """Raise `AccessDenied` unless the user has *right* on any queue of *protocol*."""
        self.check()
        if not self._credential.grant.allows_any(right, protocol):
            raise AccessDenied(self.user, right, f"any queue of {protocol}")

    def count(self, error: AccessError, address: str) -> None:
        """Count and log a call that was denied."""
        if isinstance(error, AccessDenied | NotAuthenticated):
            self._directory.denials.count(error, address)
