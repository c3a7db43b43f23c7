"""Spark master URLs: validation and a reachability check. Errors never show tokens in a URL."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

from tambomq.errors import SettingsError
from tambomq.text import format_address

_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(?:k8s|sc|spark)://.+")
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<v6>[\da-fA-F:.]+)\]|(?P<name>[^\s:/;,\[\]]+))(?::(?P<port>\d{1,5}))?"
)
_REMOTE: Final = "sc://"
_STANDALONE: Final = "spark://"
_REMOTE_PORT: Final = 15002
_SETTINGS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")

_ANSWERS_WITHIN_S: Final = 5
"""Timeout of the check; Spark itself retries for one to ten minutes."""


def is_local(master: str) -> bool:
    """Whether the workers are threads of the driver, with the same files and environment."""
    return master == "local" or master.startswith("local[")


def is_here(master: str) -> bool:
    """Whether driver and workers all run on this machine."""
    return is_local(master) or master.startswith("local-cluster[")


def is_remote(master: str) -> bool:
    """Whether the driver is remote too, behind Spark Connect."""
    return master.startswith(_REMOTE)


def check(master: str) -> None:
    """Raise `SettingsError` for an invalid master URL."""
    if not _MASTER.fullmatch(master):
        raise SettingsError(
            "master must be local, local[2], local-cluster[2,1,1024], spark://host:port, "
            f"sc://host:port, yarn or k8s://…, not {master!r}"
        )
    list(_addresses(master))


def reach(master: str, env: Mapping[str, str]) -> None:
    """Raise `SettingsError` within seconds if nothing listens, before Spark waits for minutes."""
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
            faults.append(f"{format_address(host, port)} cannot be reached ({why})")
    if faults:
        kind = "no Spark Connect server" if is_remote(master) else "no master of Spark"
        raise SettingsError(f"{kind}: {'; '.join(faults)}")


def endpoint(remote: str) -> str:
    """Return host and port of a Spark Connect server."""
    ((host, port),) = _addresses(remote)
    return format_address(host, port)


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield the addresses that must listen; none for masters that only Spark can resolve."""
    if is_remote(master):
        # Parameters follow the first /, and may include a token.
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
