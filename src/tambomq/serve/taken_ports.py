"""The check for taken ports before the start: names them, their owner, and flags that help.

All ports are checked before anything is started, so that one error names all of them.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tambomq.embedded import ports
from tambomq.errors import ComponentFailed, EmbeddedError, PortTaken
from tambomq.settings.load import HttpSettings, Settings
from tambomq.settings.types import LAST_PORT
from tambomq.text import format_address

LOCAL: Final = "127.0.0.1"
ENDPOINTS: Final = "/endpoints"
"""The HTTP path at which a ``tambo serve`` describes itself."""

# The Valkey and Envoy of a killed predecessor end within about this time.
_ORPHANS_END_S: Final = 1.0
_POLL_EVERY_S: Final = 0.1
_REPLY_TIMEOUT_S: Final = 2.0
_MAX_REPLY_BYTES: Final = 1 << 16
_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class RequiredPort:
    """A port that a component needs."""

    component: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port, as clients accept them."""
        return format_address(self.host, self.port)

    @property
    def is_taken(self) -> bool:
        """Whether another program has it; false if it cannot be bound for other reasons."""
        try:
            ports.choose(self.host, self.port)
        except PortTaken:
            return True
        except (EmbeddedError, OSError):
            return False
        return False

    @property
    def flag(self) -> str:
        """The flag for the next free port."""
        for port in range(self.port + 1, min(self.port + _TRIED, LAST_PORT)):
            if not RequiredPort(self.component, self.host, port).is_taken:
                return f"--{self.component}-port {port}"
        return f"--{self.component}-port 0"


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """Another ``tambo serve``, as it describes itself."""

    version: str
    pid: int
    addresses: frozenset[str]
    data_dir: Path

    def has(self, required: RequiredPort) -> bool:
        """Return whether *required* is one of its ports."""
        return required.address in self.addresses


def refuse_taken(settings: Settings) -> None:
    """Raise `ComponentFailed` if several ports are taken, or any by another ``tambo serve``.

    A single port that another program has is reported by its component at the start.
    """
    required = required_ports(settings)
    taken, other = _find_taken(required, settings.http)
    has_children = {"redis", "gomq"} & {each.component for each in taken}
    until = time.monotonic() + (_ORPHANS_END_S if has_children and not other else 0)
    while taken and time.monotonic() < until:
        time.sleep(_POLL_EVERY_S)
        taken, other = _find_taken(required, settings.http)
    if len(taken) > 1 or (taken and other):
        raise ComponentFailed(
            _listed([each.component for each in taken]), _why(taken, other, settings)
        )


def required_ports(settings: Settings) -> list[RequiredPort]:
    """Return the ports that *settings* name, in the order in which components start."""
    gomq, kqueue, web = settings.gomq, settings.kqueue, settings.http
    available = [
        (web.enabled, RequiredPort("http", web.host, web.port)),
        (
            settings.server.redis_url is None,
            RequiredPort("redis", LOCAL, settings.server.redis_port),
        ),
        (gomq.enabled, RequiredPort("gomq", gomq.host, gomq.port)),
        (kqueue.enabled, RequiredPort("kqueue", kqueue.host, kqueue.port)),
    ]
    return [required for enabled, required in available if enabled and required.port]


def _find_taken(
    required: Sequence[RequiredPort], web: HttpSettings
) -> tuple[list[RequiredPort], OtherProcess | None]:
    taken = [each for each in required if each.is_taken]
    default = HttpSettings()
    addresses = dict.fromkeys(((web.host, web.port), (default.host, default.port))) if taken else {}
    for address in addresses:
        if (other := describe(*address)) and any(map(other.has, taken)):
            return taken, other
    return taken, None


def _why(taken: Sequence[RequiredPort], other: OtherProcess | None, settings: Settings) -> str:
    theirs = [each.address for each in taken if other and other.has(each)]
    rest = [each.address for each in taken if each.address not in theirs]
    flags = " ".join(each.flag for each in taken)
    if other is None:
        return f"{_listed(rest)} are taken: choose other ports with {flags}"
    is_same = settings.server.redis_url is None and settings.server.data_dir == other.data_dir
    user = f"another tambo serve (version {other.version}, process {other.pid})"
    others = f", {_listed(rest)} by another program" if rest else ""
    more = " and another directory with --data-dir" if is_same else ""
    return (
        f"{_listed(theirs)} {'are' if len(theirs) > 1 else 'is'} taken by {user}{others}: use that "
        f"one, or start beside it with {flags}{more}"
    )


def describe(host: str, port: int) -> OtherProcess | None:
    """Return the ``tambo serve`` that answers at this HTTP port, `None` if there is none."""
    if not port:
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_REPLY_TIMEOUT_S)
    try:
        connection.request("GET", ENDPOINTS)
        reply = json.loads(connection.getresponse().read(_MAX_REPLY_BYTES))
        return _parse(reply)
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return None
    finally:
        connection.close()


def _parse(reply: Any) -> OtherProcess:
    """Return the process that *reply* describes. Raises if it is not a ``tambo serve``."""
    places = {name: str(each["address"]) for name, each in reply["endpoints"].items()}
    addresses = frozenset(place.rpartition("//")[2] for place in places.values())
    data_dir = Path(places.get("data", ""))
    return OtherProcess(str(reply["version"]), int(reply["pid"]), addresses, data_dir)


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
