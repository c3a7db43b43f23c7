"""`Console`: the state of a console that all requests share. Its parts come once Redis is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from weakref import WeakSet

from starlette.requests import Request

from tambomq.console.http.live import LiveFeed
from tambomq.console.http.login.access import AccessControl, Identity
from tambomq.console.http.login.certificate import identities_of
from tambomq.console.http.login.limit import LoginLimit
from tambomq.console.http.login.origin import HostRule
from tambomq.console.http.options import ConsoleOptions
from tambomq.console.http.parts import ConsoleParts
from tambomq.console.http.problems import Problem
from tambomq.console.http.scope.actions import Selections
from tambomq.console.http.scope.parts import scoped


class Console:
    """Options, sessions and limits, and the parts while there are any."""

    def __init__(
        self, options: ConsoleOptions, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.access = AccessControl(options, now_s)
        self.login_limit = LoginLimit(now_s)
        self.hosts = HostRule(options.host, options.allowed_hosts)
        self._parts: ConsoleParts | None = None
        self._feed: LiveFeed | None = None
        self._scoped_feeds: WeakSet[LiveFeed] = WeakSet()
        self._selections = Selections()

    @property
    def parts(self) -> ConsoleParts:
        """What the API calls. Raises `Problem` while there is nothing."""
        if self._parts is None:
            raise _not_there()
        return self._parts

    def parts_of(self, identity: Identity) -> ConsoleParts:
        """Return what *identity* may use of `parts`. Raises `Problem`."""
        return scoped(self.parts, identity.session, self._selections)

    @property
    def feed(self) -> LiveFeed:
        """The live updates of who sees everything. Raises `Problem` as `parts` does."""
        if self._feed is None:
            raise _not_there()
        return self._feed

    def feed_of(self, identity: Identity) -> LiveFeed:
        """Return the live updates that *identity* may see. Raises `Problem` as `parts` does."""
        if identity.session is None:
            return self.feed
        # Events are encoded once for all viewers, but what these see is their own.
        shown = self.options.max_viewers - self.feed.viewers
        left = shown - sum(feed.viewers for feed in self._scoped_feeds)
        feed = LiveFeed(self.parts_of(identity), min(left, 1))
        self._scoped_feeds.add(feed)
        return feed

    def open(self, parts: ConsoleParts) -> None:
        """Answer with *parts* from now on."""
        self._parts, self._feed = parts, LiveFeed(parts, self.options.max_viewers)

    async def close(self) -> None:
        """End live updates; requests are refused from now on."""
        feed, self._feed, self._parts = self._feed, None, None
        for each in (*self._scoped_feeds, *([feed] if feed else [])):
            await each.close()

    def identify(self, request: Request) -> Identity | None:
        """Return the caller, or `None` if it has to log in. Raises `Problem` for a wrong token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.options.needs_login:
            self.require_patience(request)
            identity = self.access.program(token.strip())
            if identity is None:
                self.login_limit.failed(address_of(request))
                raise Problem(401, "wrong_token", "The token is not valid.")
            return identity
        cookie = request.cookies.get(cookie_name(request))
        session = self.access.session(cookie) if cookie else None
        names = identities_of(request)
        certified = self.access.certified(names) if names and session is None else None
        return session or certified or self.access.anonymous

    def require_patience(self, request: Request) -> None:
        """Raise `Problem` if there were too many wrong tokens lately."""
        wait_s = self.login_limit.wait_s(address_of(request))
        if wait_s:
            raise Problem(
                429,
                "too_many_attempts",
                f"There were too many wrong tokens: try again in {wait_s:.0f} s.",
                retry_after_s=wait_s,
            )


def address_of(request: Request) -> str:
    """Return the address of the caller; behind a proxy on this machine, the one it reports."""
    return request.client.host if request.client else "unknown"


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie.

    Browsers share cookies between all ports of a host, so the name has the port.
    """
    server: tuple[str, int | None] = request.scope.get("server") or ("", None)
    name = f"tambo_session_{server[1] or 0}"
    return f"__Host-{name}" if is_secure(request) else name


def is_secure(request: Request) -> bool:
    """Return whether the browser speaks TLS, with us or with a proxy."""
    return request.url.scheme == "https"


def _not_there() -> Problem:
    return Problem(503, "starting", "This process is starting or stopping: try again in a moment.")
