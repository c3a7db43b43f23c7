"""Where Spark may run, and whether anybody is there. Nothing is said of tokens in an address."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

from tambomq.errors import SettingsError

_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(?:k8s|sc|spark)://.+")
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[\da-fA-F:.]+)\]|(?P<name>[^\s:/;,\[\]]+))(?::(?P<port>\d{1,5}))?"
)
_REMOTE: Final = "sc://"
_STANDALONE: Final = "spark://"
_REMOTE_PORT: Final = 15002
_SETTINGS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")

_ANSWERS_WITHIN_S: Final = 5
"""Spark itself tries for a minute, or ten."""


def is_local(master: str) -> bool:
    """Whether the workers are threads of the driver, which see what it sees."""
    return master == "local" or master.startswith("local[")


def is_here(master: str) -> bool:
    """Whether all of it runs on this machine."""
    return is_local(master) or master.startswith("local-cluster[")


def is_remote(master: str) -> bool:
    """Whether the driver is elsewhere too, behind Spark Connect."""
    return master.startswith(_REMOTE)


def check(master: str) -> None:
    """Raise `SettingsError` for what no master can be."""
    if not _MASTER.fullmatch(master):
        raise SettingsError(
            "master must be local, local[2], local-cluster[2,1,1024], spark://host:port, "
            f"sc://host:port, yarn or k8s://…, not {master!r}"
        )
    list(_addresses(master))


def reach(master: str, env: Mapping[str, str]) -> None:
    """Raise `SettingsError` in seconds where nobody listens, before Spark waits for minutes."""
    if master == "yarn" and not any(env.get(name) for name in _SETTINGS):
        raise SettingsError(
            f"master yarn: neither {' nor '.join(_SETTINGS)} names the directory of its settings"
        )
    faults = []
    for host, port in _addresses(master):
        try:
            with closing(socket.create_connection((host, port), _ANSWERS_WITHIN_S)):
                return
        except OSError as error:
            why = error.strerror or "no answer"
            faults.append(f"{host}:{port} cannot be reached ({why})")
    if faults:
        kind = "no Spark Connect server" if is_remote(master) else "no master of Spark"
        raise SettingsError(f"{kind}: {'; '.join(faults)}")


def endpoint(remote: str) -> str:
    """Return host and port of a server of Spark Connect."""
    ((host, port),) = _addresses(remote)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield where somebody must listen; nothing where Spark alone knows that."""
    if is_remote(master):
        # What follows the first / are parameters, a token among them.
        text, default = master.removeprefix(_REMOTE).partition("/")[0], _REMOTE_PORT
        form, parts = "sc://host:port", [text]
    elif master.startswith(_STANDALONE):
        form, parts, default = "spark://host:port", master.removeprefix(_STANDALONE).split(","), 0
    else:
        return
    for part in parts:
        found = _ADDRESS.fullmatch(part)
        port = int(found["port"] or default) if found else 0
        if found is None or not 0 < port < 2**16:
            raise SettingsError(f"master must be {form}, not {part!r}")
        yield found["v6"] or found["name"], port
