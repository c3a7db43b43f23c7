"""The parts of a server URL, checked one by one. No error quotes a password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tambomq.errors import SettingsError
from tambomq.store.primary import sentinels
from tambomq.store.roundtrip import Address

PORT: Final = 6379
_SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_BEGINNINGS: Final = "redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"


@dataclass(slots=True)
class ServerUrl:
    """A server URL, taken apart. Its *options* are removed as they are read."""

    shown: str
    """The URL without what may be a password."""
    user: str
    password: str
    options: dict[str, str]
    nodes: tuple[Address, ...] = (("127.0.0.1", PORT),)
    path: str | None = None
    """Path of a Unix socket."""
    name: str | None = None
    """The name of the primary, if *nodes* are sentinels."""
    db: int = 0
    is_tls: bool = False

    def switch(self, option: str, *, default: bool) -> bool:
        """Take an option that is yes or no. Raises `SettingsError`."""
        word = self.options.pop(option, "yes" if default else "no")
        if word not in ("yes", "no"):
            raise SettingsError(f"{option} in a server URL is yes or no, not {word!r}")
        return word == "yes"


def parse(url: str) -> ServerUrl:
    """Take *url* apart. Raises `SettingsError`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # The text of the ValueError may quote the password.
        raise SettingsError(f"{_shown(url)} is not a URL") from None
    if parts.scheme not in _SCHEMES:
        raise SettingsError(f"{_shown(url)}: a server URL begins with {_BEGINNINGS}")
    found = ServerUrl(
        _shown(url),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        dict(parse_qsl(parts.query, keep_blank_values=True)),
    )
    (_read_unix if parts.scheme == "unix" else _read_network)(found, parts)
    return found


def _read_unix(found: ServerUrl, parts: SplitResult) -> None:
    if parts.netloc.rpartition("@")[2] or not parts.path:
        raise SettingsError("a unix:// URL has three slashes and a path: unix:///run/redis.sock")
    found.path = unquote(parts.path)
    found.db = _db("", found.options)


def _read_network(found: ServerUrl, parts: SplitResult) -> None:
    if "@" in parts.path + parts.query + parts.fragment:
        raise SettingsError("in the password of a server URL, write / as %2F, ? as %3F, # as %23")
    found.is_tls = parts.scheme.startswith("rediss")
    path = parts.path.strip("/")
    if parts.scheme.endswith("+sentinel"):
        found.nodes = _nodes(parts, sentinels.PORT)
        name, _, path = path.partition("/")
        if not name:
            raise SettingsError(
                f"{found.shown}: a URL of sentinels ends with the name of the primary: "
                f"{parts.scheme}://host:{sentinels.PORT}/mymaster"
            )
        found.name = unquote(name)
    else:
        found.nodes = _nodes(parts, PORT)
    found.db = _db(path, found.options)


def _db(path: str, options: dict[str, str]) -> int:
    option = options.pop("db", "") or "0"
    return _number("db", path or option)


def _nodes(parts: SplitResult, port: int) -> tuple[Address, ...]:
    hosts = parts.netloc.rpartition("@")[2]
    if not hosts:
        return (("127.0.0.1", port),)
    return tuple(_node(host, port) for host in hosts.split(","))


def _node(text: str, default_port: int) -> Address:
    if not text:
        raise SettingsError("a server URL has a host between its commas")
    name, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = text, str(default_port)
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
    return url.rpartition("@")[2].partition("?")[0]
