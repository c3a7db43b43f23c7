"""The facts that ``tambo doctor`` judges, and its findings. Values only: nothing is asked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tambomq.alarms.model import Alarm

Level = Literal["ok", "look", "wrong"]


class DoctorFinding(msgspec.Struct, frozen=True):
    """One line of the diagnosis: how it is, and what to do about it."""

    level: Level
    """``wrong`` loses messages or stops them; ``look`` may become so."""
    about: str
    finding: str
    next: str = ""
    """What to do; empty if nothing."""


class RefusalReason(msgspec.Struct, frozen=True):
    """Why a server did not do something."""

    kind: str
    """The first word of the server's error, such as ``MISCONF``; empty if it did not answer."""
    text: str


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a Redis or Valkey server. What an ACL forbids to ask is missing."""

    url: str
    """Without a password."""
    is_local: bool = True
    """Whether it runs on this machine, so that the machine's settings are its own."""
    unreachable: RefusalReason | None = None
    round_trip_ms: float = 0.0
    info: Mapping[str, str] = {}
    """The fields of INFO."""
    config: Mapping[str, str] = {}
    """Some of CONFIG GET."""
    native: tuple[str, ...] = ()
    """Optional commands that the server has."""
    ahead_s: float | None = None
    """How far this machine's clock is ahead of the server's."""
    write_refused: RefusalReason | None = None
    script_refused: RefusalReason | None = None
    user: str = ""
    forbidden: Mapping[str, tuple[str, ...]] = {}
    """By protocol: commands on its keys that the user may not run."""
    alarms: tuple[Alarm, ...] = ()
    """The alarms that a ``tambo serve`` has raised, which stop producers."""
    asked: tuple[str, ...] = ()
    """The protocols whose commands were checked."""

    def number(self, field: str) -> int:
        """Return a number of INFO; 0 if it is not there."""
        text = self.info.get(field, "")
        return int(text) if text.lstrip("-").isdigit() else 0


class PortReport(msgspec.Struct, frozen=True):
    """A port that a component of ``tambo serve`` uses."""

    component: str
    address: str
    is_taken: bool
    by_tambo: str = ""
    """Version and process of the ``tambo serve`` that has it."""
    by_server: bool = False
    """Whether it is the port of the server that is examined."""
    flag: str = ""
    """The flag that chooses another."""


class MachineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this machine and this installation."""

    python: str
    version: str
    extras: Mapping[str, str]
    """Extras that are not installed, and how to install each."""
    spark: str = ""
    """The version of PySpark; empty if it is not installed."""
    java: str = ""
    """Version and program of the Java for Spark; empty if there is none."""
    java_faults: tuple[str, ...] = ()
    """Programs that were found, and why Spark cannot use them."""
    ports: tuple[PortReport, ...] = ()
    settings_fault: str = ""
    """Why ``tambo.toml`` or the environment cannot be used."""
    open_files: tuple[int, int] | None = None
    """How many files a process may open: the limit, and how far it may be raised."""
    max_connections: int = 0
    """How many clients KqueueMsgQ accepts."""
    overcommit: str = ""
    huge_pages: str = ""
    data_dir: str = ""
    disk_free_bytes: int | None = None
    disk_bytes: int = 0
