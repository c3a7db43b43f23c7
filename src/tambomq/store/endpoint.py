"""The address of a Redis server and its login: URLs, TLS, credentials, the handshake."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, TypeAlias
from urllib.parse import quote

from tambomq.errors import InvalidValue, SettingsError, StoreUnavailable, TamboError
from tambomq.store import server_url
from tambomq.store.call import Arg
from tambomq.store.local_login import local_login
from tambomq.store.primary import sentinels
from tambomq.store.primary.sentinels import Sentinels
from tambomq.store.roundtrip import Address
from tambomq.store.server_url import PORT, ServerUrl
from tambomq.text import format_address

URL = "redis://127.0.0.1:6379"
CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0
PATIENCE_S = 10.0
# On a busy machine a healthy server may take a few tenths of a second to reply.
SHORTEST_TIMEOUT_S = 0.5
# Some commands block for up to a second: their replies are not late before that.
SHORTEST_REPLY_S = 3.0

Login: TypeAlias = tuple[str, str]
Credentials: TypeAlias = Callable[[], Login | Awaitable[Login]]
"""Called for user and password at each new connection, for tokens that rotate."""


def check_patience(patience_s: float) -> float:
    """Return the retry budget *patience_s* if it is valid; raise `InvalidValue` if not."""
    is_number = isinstance(patience_s, int | float) and not isinstance(patience_s, bool)
    if not is_number or not patience_s >= 0:
        raise InvalidValue("patience_s", patience_s, "0 or more seconds")
    return patience_s


@dataclass(frozen=True, slots=True)
class Tls:
    """CA to trust, and client certificate. All are paths; no *ca* means the system's own."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context for sockets. Raises `SettingsError`."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (self.ca, self.cert, self.key)))
            raise SettingsError(f"cannot use the TLS files {files}: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, or the seed nodes of a cluster, with login and timeouts.

    Of several *nodes* the first primary is used. With *sentinels* there are no nodes: the primary
    that they name is used. See `tambomq.store.primary`.
    """

    nodes: tuple[Address, ...] = (("127.0.0.1", PORT),)
    path: str | None = None
    """A Unix socket; if set, *nodes* are ignored."""
    db: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    sentinels: Sentinels | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    reply_timeout_s: float = REPLY_TIMEOUT_S

    def __str__(self) -> str:
        """Return the URL without secrets."""
        if self.path:
            return f"unix://{self.path}"
        scheme = "rediss" if self.tls else "redis"
        if self.sentinels:
            return f"{scheme}+sentinel://{self.sentinels}/{quote(self.sentinels.name)}/{self.db}"
        return f"{scheme}://{','.join(starmap(format_address, self.nodes))}/{self.db}"

    def of_sentinel(self, watchers: Sentinels, node: Address) -> Endpoint:
        """Return the endpoint of one of the sentinels *watchers*, with their login."""
        return Endpoint(
            nodes=(node,),
            user=watchers.user,
            password=watchers.password,
            tls=watchers.tls,
            connect_timeout_s=min(self.connect_timeout_s, sentinels.ANSWER_WITHIN_S),
            reply_timeout_s=min(self.reply_timeout_s, sentinels.ANSWER_WITHIN_S),
        )

    def with_timeout(self, timeout_s: float) -> Endpoint:
        """Return the same server with timeouts of at most *timeout_s*.

        For lease renewals: on a connection that a NAT has silently dropped, the timeout must be a
        fraction of the lease. Timeouts are only ever lowered.
        """
        timeout_s = max(timeout_s, SHORTEST_TIMEOUT_S)
        return replace(
            self,
            connect_timeout_s=min(self.connect_timeout_s, timeout_s),
            reply_timeout_s=min(self.reply_timeout_s, timeout_s),
        )

    def within(self, patience_s: float) -> Endpoint:
        """Return the same server with timeouts that fit into the retry budget *patience_s*.

        A single try must not take longer than all tries together may. Raises `InvalidValue`.
        """
        if check_patience(patience_s) >= PATIENCE_S:
            return self
        return replace(
            self,
            connect_timeout_s=min(self.connect_timeout_s, max(patience_s, SHORTEST_TIMEOUT_S)),
            reply_timeout_s=min(self.reply_timeout_s, max(patience_s, SHORTEST_REPLY_S)),
        )

    def login(self) -> Login:
        """Return user and password, from a blocking caller.

        An async provider runs on an event loop of its own: a worker's heartbeat must be able to
        log in while the worker's loop is blocked.
        """
        if self.credentials is None:
            return self.user, self.password
        with _provider_errors():
            answer = self.credentials()
            return _finished(answer) if inspect.isawaitable(answer) else answer

    async def login_async(self) -> Login:
        """Return user and password, from a coroutine."""
        if self.credentials is None:
            return self.user, self.password
        with _provider_errors():
            answer = self.credentials()
            return await answer if inspect.isawaitable(answer) else answer

    def handshake_commands(self, login: Login, peer: Sequence[Any]) -> list[tuple[Arg, ...]]:
        """Return the first commands on a connection to the address *peer*.

        Without a *login*, that of this user's embedded server at the address is used, if any.
        """
        if not any(login) and not self.tls and self.credentials is None and len(self.nodes) == 1:
            login = local_login(self.path or (peer[0], peer[1]))
        user, password = login
        commands: list[tuple[Arg, ...]] = []
        if user or password:
            commands.append(("AUTH", user, password) if user else ("AUTH", password))
        if self.db:
            commands.append(("SELECT", self.db))
        commands.append(("CLIENT", "SETNAME", "tambomq"))
        if len(self.nodes) > 1 or self.sentinels:
            # HELLO reports the role. ROLE would too, but ACLs may forbid it.
            commands.append(("HELLO",))
        return commands


def is_replica(greeted: Sequence[Any]) -> bool:
    """Whether the replies to a handshake say that the server is a replica."""
    hello = next((reply for reply in greeted if isinstance(reply, list)), [])
    facts = dict(zip(hello[::2], hello[1::2], strict=False))
    return facts.get(b"role") in (b"replica", b"slave")


@contextmanager
def _provider_errors() -> Iterator[None]:
    """Raise what a credential provider raises as `StoreUnavailable`: it is asked again."""
    try:
        yield
    except TamboError:
        raise
    except Exception as error:
        text = f"the credential provider failed: {type(error).__name__}: {error}"
        raise StoreUnavailable(text) from error


def _finished(answer: Awaitable[Login]) -> Login:
    import asyncio  # noqa: PLC0415  (half of what a command takes to start)

    async def login() -> Login:
        return await answer

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(login())
    if inspect.iscoroutine(answer):
        answer.close()
    raise SettingsError("inside an event loop an async credential provider needs an async client")


def endpoint(
    url: str | Endpoint, *, tls: Tls | None = None, credentials: Credentials | None = None
) -> Endpoint:
    """Parse *url*. Raises `SettingsError`.

    ``redis://[user:password@]host[:port][,host:port…][/db]``, the same with
    ``rediss`` for TLS (options ``ca``, ``cert``, ``key`` are paths, ``verify=no``
    accepts any certificate), ``unix://[user:password@]/path?db=0``, and
    ``redis+sentinel://[user:password@]host[:port][,host:port…]/name[/db]`` or
    ``rediss+sentinel`` for the primary that sentinels know by that name. The login is that of the
    primary; ``sentinel_user`` and ``sentinel_password`` are for the sentinels. With TLS they use
    it too, unless ``sentinel_tls=no``; ``sentinel_ca`` and so on replace ``ca`` and so on.
    """
    if isinstance(url, Endpoint):
        return replace(url, tls=tls or url.tls, credentials=credentials or url.credentials)
    parts = server_url.parse(url)
    if tls and not parts.is_tls:
        schemes = "rediss:// or rediss+sentinel://"
        raise SettingsError(f"{parts.shown}: TLS needs a URL that begins with {schemes}")
    tls = (tls or _tls(parts)) if parts.is_tls else None
    found = Endpoint(
        nodes=parts.nodes if parts.name is None else (),
        path=parts.path,
        db=parts.db,
        user=parts.user,
        password=parts.password,
        tls=tls,
        credentials=credentials,
    )
    if parts.name is not None:
        watchers = _sentinels(parts, parts.name, tls)
        found = replace(found, sentinels=watchers, connect_timeout_s=sentinels.ANSWER_WITHIN_S)
    if parts.options:
        raise SettingsError(f"{found}: unknown option {', '.join(sorted(parts.options))}")
    return found


def _sentinels(parts: ServerUrl, name: str, tls: Tls | None) -> Sentinels:
    with_tls = parts.switch("sentinel_tls", default=tls is not None)
    return Sentinels(
        parts.nodes,
        name,
        parts.options.pop("sentinel_user", ""),
        parts.options.pop("sentinel_password", ""),
        _tls(parts, "sentinel_", tls) if with_tls else None,
    )


def _tls(parts: ServerUrl, prefix: str = "", tls: Tls | None = None) -> Tls:
    """Take the TLS options that begin with *prefix*; those that are missing are as in *tls*."""
    tls = tls or Tls()
    return Tls(
        ca=parts.options.pop(f"{prefix}ca", tls.ca),
        cert=parts.options.pop(f"{prefix}cert", tls.cert),
        key=parts.options.pop(f"{prefix}key", tls.key),
        verify=parts.switch(f"{prefix}verify", default=tls.verify),
    )
