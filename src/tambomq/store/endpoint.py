"""The address of a Redis server and its login: URLs, TLS, credentials, the handshake."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tambomq.errors import InvalidValue, SettingsError
from tambomq.store.call import Arg
from tambomq.store.local_login import local_login
from tambomq.store.roundtrip import Address
from tambomq.text import format_address

URL = "redis://127.0.0.1:6379"
PORT = 6379
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

    Of several *nodes* the first primary is used; see `tambomq.store.choice`.
    """

    nodes: tuple[Address, ...] = (("127.0.0.1", PORT),)
    path: str | None = None
    """A Unix socket; if set, *nodes* are ignored."""
    db: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    reply_timeout_s: float = REPLY_TIMEOUT_S

    def __str__(self) -> str:
        """Return the URL without secrets."""
        if self.path:
            return f"unix://{self.path}"
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{','.join(starmap(format_address, self.nodes))}/{self.db}"

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
        answer = self.credentials()
        return _finished(answer) if inspect.isawaitable(answer) else answer

    async def login_async(self) -> Login:
        """Return user and password, from a coroutine."""
        if self.credentials is None:
            return self.user, self.password
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
        if len(self.nodes) > 1:
            # HELLO reports the role. ROLE would too, but ACLs may forbid it.
            commands.append(("HELLO",))
        return commands


def is_replica(greeted: Sequence[Any]) -> bool:
    """Whether the replies to a handshake say that the server is a replica."""
    hello = next((reply for reply in greeted if isinstance(reply, list)), [])
    facts = dict(zip(hello[::2], hello[1::2], strict=False))
    return facts.get(b"role") in (b"replica", b"slave")


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
    accepts any certificate), ``unix://[user:password@]/path?db=0``.
    """
    if isinstance(url, Endpoint):
        return replace(url, tls=tls or url.tls, credentials=credentials or url.credentials)
    try:
        parts = urlsplit(url)
    except ValueError:
        # The text of the ValueError may quote the password.
        raise SettingsError(f"{_shown(url)} is not a URL") from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise SettingsError(
            f"{_shown(url)}: a server URL begins with redis://, rediss:// or unix://"
        )
    if tls and parts.scheme != "rediss":
        raise SettingsError(f"{_shown(url)}: TLS needs a URL that begins with rediss://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    found = _unix(parts, options) if parts.scheme == "unix" else _network(parts, options, tls)
    if options:
        raise SettingsError(f"{found}: unknown option {', '.join(sorted(options))}")
    return replace(
        found,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        credentials=credentials,
    )


def _unix(parts: SplitResult, options: dict[str, str]) -> Endpoint:
    if parts.netloc.rpartition("@")[2] or not parts.path:
        raise SettingsError("a unix:// URL has three slashes and a path: unix:///run/redis.sock")
    return Endpoint(path=unquote(parts.path), db=_number("db", options.pop("db", "0")))


def _network(parts: SplitResult, options: dict[str, str], tls: Tls | None) -> Endpoint:
    if "@" in parts.path + parts.query + parts.fragment:
        raise SettingsError("in the password of a server URL, write / as %2F, ? as %3F, # as %23")
    db = options.pop("db", "") or "0"
    return Endpoint(
        nodes=_nodes(parts),
        db=_number("db", parts.path.strip("/") or db),
        tls=(tls or _tls(options)) if parts.scheme == "rediss" else None,
    )


def _tls(options: dict[str, str]) -> Tls:
    verify = options.pop("verify", "yes")
    if verify not in ("yes", "no"):
        raise SettingsError(f"verify in a server URL is yes or no, not {verify!r}")
    return Tls(
        ca=options.pop("ca", None),
        cert=options.pop("cert", None),
        key=options.pop("key", None),
        verify=verify == "yes",
    )


def _nodes(parts: SplitResult) -> tuple[Address, ...]:
    hosts = parts.netloc.rpartition("@")[2]
    if not hosts:
        return (("127.0.0.1", PORT),)
    return tuple(map(_node, hosts.split(",")))


def _node(text: str) -> Address:
    if not text:
        raise SettingsError("a server URL has a host between its commas")
    name, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = text, str(PORT)
    number = _number("port", port)
    if not 0 < number < 1 << 16:
        raise SettingsError(f"port in a server URL is between 1 and 65535, not {number}")
    return name.strip("[]") or "127.0.0.1", number


def _number(what: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{what} in a server URL is a number, not {text!r}")
    return int(text)


def _shown(url: str) -> str:
    """Return *url* without what may be a password."""
    return url.rpartition("@")[2]
