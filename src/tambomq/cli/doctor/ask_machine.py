"""Looks at this machine and this installation for ``tambo doctor``. Starts no Java."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import tambomq
from tambomq.cli.doctor.facts import MachineReport, PortReport
from tambomq.errors import SettingsError
from tambomq.extras import EXTRAS, how_to_install, is_installed
from tambomq.settings import load as settings
from tambomq.settings.sections import Settings
from tambomq.store.endpoint import Endpoint

_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_OPTIONAL: Final = ("testing", "otel", "connect", "envoy")
"""Extras that few need: their absence is not worth a line."""
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)([^"]*)"', re.MULTILINE)


def ask_machine(server: Endpoint) -> MachineReport:
    """Return the facts about this machine; *server* is the one that is examined."""
    fault, loaded = "", Settings()
    try:
        loaded = settings.load()
    except SettingsError as error:
        fault = str(error)
    java, java_faults = _java()
    data_dir = loaded.server.data_dir
    disk = _disk(data_dir)
    return MachineReport(
        python=platform.python_version(),
        version=tambomq.__version__,
        extras={each: how_to_install(each) for each in _extras() if not is_installed(each)},
        spark=_version("pyspark"),
        java=java,
        java_faults=java_faults,
        ports=_ports(loaded, server),
        settings_fault=fault,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        max_connections=loaded.kqueue.max_connections,
        overcommit=_read(_OVERCOMMIT),
        huge_pages=_read(_HUGE_PAGES),
        data_dir=str(data_dir),
        disk_free_bytes=disk.free if disk else None,
        disk_bytes=disk.total if disk else 0,
    )


def _extras() -> list[str]:
    return [name for name in dict.fromkeys(EXTRAS.values()) if name not in _OPTIONAL]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _java() -> tuple[str, tuple[str, ...]]:
    """Return the Java that Spark would run on, and those that it cannot use."""
    # Nothing of it imports Spark; without that extra it has nothing to find.
    from tambomq.spark.launch.java import MIN_VERSION, ask, candidates

    faults: list[str] = []
    for named_by, program in candidates(os.environ):
        release = _release(program)
        if release is None and (asked := ask(program)) is not None:
            release = (asked.version, str(asked.version))
        if release is None:
            faults.append(f"{named_by} names {program}, which does not start")
        elif release[0] < MIN_VERSION:
            faults.append(f"{named_by} names {program}, which is Java {release[1]}")
        else:
            return f"Java {release[1]} ({named_by}: {program})", tuple(faults)
    return "", tuple(faults)


def _release(program: Path) -> tuple[int, str] | None:
    """Return the version in the file that a Java has beside its programs, major and whole."""
    try:
        text = (program.resolve().parents[1] / "release").read_text("utf-8")
    except (OSError, IndexError, UnicodeDecodeError):
        return None
    found = _RELEASE.search(text)
    return (int(found[1]), found[1] + found[2]) if found else None


def _ports(loaded: Settings, server: Endpoint) -> tuple[PortReport, ...]:
    try:
        from tambomq.serve.taken_ports import describe, required_ports
    except ModuleNotFoundError:  # the extra [serve] has what it imports
        return ()
    other = describe(loaded.http.host, loaded.http.port)
    return tuple(
        PortReport(
            component=each.component,
            address=each.address,
            is_taken=(is_taken := each.is_taken),
            by_tambo=f"{other.version}, process {other.pid}" if other and other.has(each) else "",
            by_server=not server.path and (each.host, each.port) in server.nodes,
            flag=each.flag if is_taken else "",
        )
        for each in required_ports(loaded)
    )


def _disk(path: Path) -> shutil._ntuple_diskusage | None:
    """Return the usage of the disk that has *path*, or would have it."""
    for each in (path, *path.parents):
        try:
            return shutil.disk_usage(each)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
