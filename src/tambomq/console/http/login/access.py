"""Who is calling: tokens, sessions and roles. Sessions are in memory; a restart ends them.

Tokens are compared in constant time. The cookie's value is random and only its digest is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tambomq.access.directory import UserDirectory, UserSession
from tambomq.console.http.options import ConsoleOptions
from tambomq.errors import NotAuthenticated

Role = Literal["viewer", "operator"]

MAX_SESSIONS: Final = 1000
"""Beyond it, the oldest session ends."""

_RANKS: Final[dict[Role, int]] = {"viewer": 1, "operator": 2}


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller: its name in the audit log, its role, and what its requests must carry."""

    user: str
    role: Role
    csrf: str
    """What the header ``X-Tambo-CSRF`` must have; empty for programs, which send a token."""
    session: UserSession | None = None
    """The rights of a user that has some queues only; `None` for a token of the settings."""
    by_certificate: bool = False
    """Whether the connection has identified it, so that it cannot log out."""

    def may(self, role: Role) -> bool:
        """Return whether it has *role* or a higher one."""
        return _RANKS[self.role] >= _RANKS[role]


@dataclass(frozen=True, slots=True)
class _Session:
    identity: Identity
    ends_at_s: float


class AccessControl:
    """The sessions of a console, and who may open one. *now_s* is a monotonic clock."""

    def __init__(self, options: ConsoleOptions, now_s: Callable[[], float]) -> None:
        self._options, self._now_s = options, now_s
        self.users: UserDirectory | None = None
        """Users besides the tokens of the settings, as soon as they are read."""
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        tokens: tuple[tuple[Role, str | None], ...] = (
            ("operator", options.operator_token),
            ("viewer", options.viewer_token),
        )
        self._tokens = [(role, _digest(token)) for role, token in tokens if token]
        # Programs and pages on this machine that need no log-in share one secret, which pages of
        # other origins cannot read.
        self._local = Identity("local", "operator", secrets.token_urlsafe(32))
        self._csrf_key = secrets.token_bytes(32)

    @property
    def anonymous(self) -> Identity | None:
        """Callers without a token: everything is allowed to them, or they have to log in."""
        return None if self._options.needs_login else self._local

    def role_of(self, token: str) -> Role | None:
        """Return the role that *token* gives."""
        digest, found = _digest(token), None
        for role, known in self._tokens:
            # All are compared, so that the time does not say which one fits.
            if hmac.compare_digest(digest, known) and found is None:
                found = role
        return found

    def program(self, token: str) -> Identity | None:
        """Return the caller that sends *token* with each request."""
        if role := self.role_of(token):
            return Identity(f"{role} token", role, "")
        return self._user(lambda users: users.log_in(token))

    def certified(self, names: Iterable[str]) -> Identity | None:
        """Return the user that has one of the *names* of a certificate.

        Browsers send certificates also with requests that pages of other origins make, so this
        caller has to show a secret that only its own pages can read.
        """
        found = self._user(lambda users: users.log_in_by(names))
        if found is None:
            return None
        csrf = hmac.new(self._csrf_key, found.user.encode(), hashlib.sha256).hexdigest()
        return replace(found, csrf=csrf, by_certificate=True)

    def log_in(self, role: Role, user: Identity | None = None) -> tuple[str, Identity]:
        """Open a session, perhaps of *user*; return the value of its cookie, and the caller."""
        cookie = secrets.token_urlsafe(32)
        name, session = (user.user, user.session) if user and user.session else (role, None)
        identity = Identity(name, role, secrets.token_urlsafe(32), session)
        ends_at_s = self._now_s() + self._options.session_s
        self._sessions[_digest(cookie)] = _Session(identity, ends_at_s)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie, identity

    def session(self, cookie: str) -> Identity | None:
        """Return the caller whose session *cookie* names, unless it has ended."""
        digest = _digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        if self._now_s() >= session.ends_at_s:
            del self._sessions[digest]
            return None
        if not is_current(session.identity):
            del self._sessions[digest]
            return None
        return session.identity

    def log_out(self, cookie: str) -> None:
        """End the session."""
        self._sessions.pop(_digest(cookie), None)

    def _user(self, log_in: Callable[[UserDirectory], UserSession]) -> Identity | None:
        """Return the user that *log_in* finds, if it may use the console."""
        try:
            session = log_in(self.users) if self.users else None
        except NotAuthenticated:
            return None
        if session is None:
            return None
        may_act = session.has_right("manage") or session.has_right("send")
        return Identity(session.user, "operator" if may_act else "viewer", "", session)


def is_current(identity: Identity) -> bool:
    """Return whether the user of *identity*, if it is one, is still there."""
    try:
        if identity.session:
            identity.session.check()
    except NotAuthenticated:
        return False
    return True


def is_same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    return hmac.compare_digest(_digest(given), _digest(expected))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
