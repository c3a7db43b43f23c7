"""Refuses to start where ports are taken: says which, by whom, and which flags help.

All are looked at before anything is opened, so that one start tells of all of them.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tambomq.errors import DoorFailed, EmbeddedError, PortTaken
from tambomq.forms import LAST_PORT
from tambomq.serve.listening import spelled
from tambomq.settings import HttpSettings, Settings
from tambomq.store import ports

LOCAL: Final = "127.0.0.1"
ENDPOINTS: Final = "/endpoints"
"""Where a process tells over HTTP who it is and what it has opened."""

# What a killed predecessor has left behind, a Valkey and an Envoy, ends in about this time.
_LEFT_BEHIND_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.1
_ANSWER_WITHIN_S: Final = 2.0
_LONGEST_ANSWER: Final = 1 << 16
_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port that a door is to have."""

    door: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Host and port, as clients take them."""
        return spelled((self.host, self.port))

    @property
    def is_taken(self) -> bool:
        """Whether somebody has it; false too where nobody can: the door says why."""
        try:
            ports.choose(self.host, self.port)
        except PortTaken:
            return True
        except (EmbeddedError, OSError):
            return False
        return False

    @property
    def flag(self) -> str:
        """The flag that gives the door the next port that is free."""
        for port in range(self.port + 1, min(self.port + _TRIED, LAST_PORT)):
            if not Wanted(self.door, self.host, port).is_taken:
                return f"--{self.door}-port {port}"
        return f"--{self.door}-port 0"


@dataclass(frozen=True, slots=True)
class Other:
    """Another ``tambo serve``, as it describes itself."""

    version: str
    pid: int
    addresses: frozenset[str]
    data_dir: Path

    def has(self, wanted: Wanted) -> bool:
        """Return whether *wanted* is one of its ports."""
        return wanted.address in self.addresses


def refuse_taken(settings: Settings) -> None:
    """Raise `DoorFailed` if several ports are taken, or any by another ``tambo serve``.

    One port that another program has is left to its door, which says the same.
    """
    wanted = _wanted(settings)
    taken, other = _look(wanted, settings.http)
    has_children = {"redis", "gomq"} & {each.door for each in taken}
    until = time.monotonic() + (_LEFT_BEHIND_S if has_children and not other else 0)
    while taken and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
        taken, other = _look(wanted, settings.http)
    if len(taken) > 1 or (taken and other):
        raise DoorFailed(_listed([each.door for each in taken]), _why(taken, other, settings))


def _wanted(settings: Settings) -> list[Wanted]:
    """Return the ports that *settings* name, in the order in which doors open."""
    gomq, kqueue, web = settings.gomq, settings.kqueue, settings.http
    asked = [
        (web.enabled, Wanted("http", web.host, web.port)),
        (settings.server.redis_url is None, Wanted("redis", LOCAL, settings.server.redis_port)),
        (gomq.enabled, Wanted("gomq", gomq.host, gomq.port)),
        (kqueue.enabled, Wanted("kqueue", kqueue.host, kqueue.port)),
    ]
    return [wanted for enabled, wanted in asked if enabled and wanted.port]


def _look(wanted: Sequence[Wanted], web: HttpSettings) -> tuple[list[Wanted], Other | None]:
    taken = [each for each in wanted if each.is_taken]
    usual = HttpSettings()
    places = dict.fromkeys(((web.host, web.port), (usual.host, usual.port))) if taken else {}
    for place in places:
        if (other := ask(*place)) and any(map(other.has, taken)):
            return taken, other
    return taken, None


def _why(taken: Sequence[Wanted], other: Other | None, settings: Settings) -> str:
    theirs = [each.address for each in taken if other and other.has(each)]
    rest = [each.address for each in taken if each.address not in theirs]
    flags = " ".join(each.flag for each in taken)
    if other is None:
        return f"{_listed(rest)} are taken: choose other ports with {flags}"
    is_same = settings.server.redis_url is None and settings.server.data_dir == other.data_dir
    who = f"another tambo serve (version {other.version}, process {other.pid})"
    others = f", {_listed(rest)} by another program" if rest else ""
    more = " and another directory with --data-dir" if is_same else ""
    return (
        f"{_listed(theirs)} {'are' if len(theirs) > 1 else 'is'} taken by {who}{others}: use that "
        f"one, or start beside it with {flags}{more}"
    )


def ask(host: str, port: int) -> Other | None:
    """Return who serves HTTP there, if it is one of us."""
    if not port:
        return None
    asked = http.client.HTTPConnection(host, port, timeout=_ANSWER_WITHIN_S)
    try:
        asked.request("GET", ENDPOINTS)
        told = json.loads(asked.getresponse().read(_LONGEST_ANSWER))
        return _read(told)
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return None
    finally:
        asked.close()


def _read(told: Any) -> Other:
    """Return what another process says of itself. Raises if it is none of us."""
    places = {name: str(each["address"]) for name, each in told["endpoints"].items()}
    addresses = frozenset(place.rpartition("//")[2] for place in places.values())
    data_dir = Path(places.get("data", ""))
    return Other(str(told["version"]), int(told["pid"]), addresses, data_dir)


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
