"""The checks of a server, on facts that were gathered before. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tambomq.alarms.eviction import eviction_risk
from tambomq.cli.doctor.facts import DoctorFinding, Level, RefusalReason, ServerReport
from tambomq.cli.doctor.server_disk_checks import persistence, replicas, writes
from tambomq.text import in_units

MIN_REDIS: Final = (7, 0)
MIN_VALKEY: Final = (7, 2)
CLOCK_LOOK_S: Final = 1.0
CLOCK_WRONG_S: Final = 5.0
"""Beyond it a process does not lead ChasquiMQ queues."""
SLOW_MS: Final = 50.0
_NEARLY_FULL, _FULL = 0.75, 0.95
_OF_MACHINE: Final = 0.8
_MANY: Final = 0.8
_NUMBERS: Final = re.compile(r"\d+")
_LOGIN: Final = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
_ACL_GUIDE: Final = "docs/guides/security.md has the rules that a user needs"


def check_server(facts: ServerReport) -> list[DoctorFinding]:
    """Return what there is to say about the server."""
    if facts.unreachable is not None:
        return [_unreachable(facts.url, facts.unreachable)]
    return [finding for check in _CHECKS for finding in check(facts)]


def _unreachable(url: str, why: RefusalReason) -> DoctorFinding:
    if why.kind in _LOGIN:
        return DoctorFinding(
            "wrong",
            "server",
            f"the login is refused: {why.text}",
            "give user and password in the URL: --redis-url redis://user:password@host:port",
        )
    return DoctorFinding(
        "wrong",
        "server",
        why.text if url in why.text else f"{url} does not answer: {why.text}",
        "is it running? `tambo serve` starts one; --redis-url names another",
    )


def _server(facts: ServerReport) -> Iterator[DoctorFinding]:
    name, version = _name_and_version(facts)
    if not version:
        yield DoctorFinding(
            "look", "server", f"{facts.url} does not say its version", "allow the user INFO"
        )
        return
    oldest = MIN_VALKEY if name == "Valkey" else MIN_REDIS
    if tuple(map(int, _NUMBERS.findall(version)[:2])) < oldest:
        yield DoctorFinding(
            "wrong",
            "server",
            f"{name} {version} is too old",
            f"TamboMQ needs {name} {oldest[0]}.{oldest[1]} or newer: upgrade it",
        )
        return
    took = f"{name} {version} answers in {facts.round_trip_ms:.2f} ms"
    if facts.round_trip_ms > SLOW_MS:
        advice = "a round trip is slow: move closer to the server, or look for what blocks it"
        yield DoctorFinding("look", "server", took, f"{advice} with `redis-cli slowlog get`")
    else:
        yield DoctorFinding("ok", "server", took)


def _features(facts: ServerReport) -> Iterator[DoctorFinding]:
    native = ", ".join(name.upper() for name in facts.native)
    text = f"has {native}" if native else "has none of XACKDEL, IDMP, CLAIM; scripts do the same"
    yield DoctorFinding("ok", "features", text)
    if facts.info.get("cluster_enabled") == "1":
        yield DoctorFinding(
            "look",
            "cluster",
            "this is a cluster: the keys of one operation must share a slot",
            "give RSMQ a namespace in braces, such as {rsmq}; GOMQ and journals need one server",
        )


def _eviction(facts: ServerReport) -> Iterator[DoctorFinding]:
    policy, evicted = facts.info.get("maxmemory_policy", ""), facts.number("evicted_keys")
    if risk := eviction_risk(policy, facts.number("maxmemory")):
        level: Level = "wrong" if risk.is_fatal else "look"
        yield DoctorFinding(level, "eviction", risk.text, risk.advice)
    elif policy:
        yield DoctorFinding("ok", "eviction", f"{policy}: nothing is deleted to make space")
    if evicted:
        yield DoctorFinding(
            "wrong",
            "eviction",
            f"{evicted:,} keys were evicted since the server started: messages may be lost",
            "`tambo pipeline audit` finds queues that are damaged",
        )


def _memory(facts: ServerReport) -> Iterator[DoctorFinding]:
    used, limit = facts.number("used_memory"), facts.number("maxmemory")
    machine = facts.number("total_system_memory")
    if not used:
        return
    if not limit:
        of = f" of {in_units(machine)}" if machine else ""
        yield DoctorFinding(
            "look",
            "memory",
            f"{in_units(used)}{of} used, without a limit: the system may end the server",
            "CONFIG SET maxmemory to at most half of the machine's memory",
        )
        return
    share, text = used / limit, f"{in_units(used)} of {in_units(limit)} used"
    if share >= _NEARLY_FULL:
        yield DoctorFinding(
            "wrong" if share >= _FULL else "look",
            "memory",
            f"{text} ({share:.0%}): when it is full, sends are refused",
            "`tambo top --sort depth` shows which queues are long; add workers or memory",
        )
    elif machine and limit > _OF_MACHINE * machine:
        yield DoctorFinding(
            "look",
            "memory",
            f"the limit of {in_units(limit)} is most of the machine's {in_units(machine)}",
            "a save in the background may need as much again: lower maxmemory",
        )
    else:
        yield DoctorFinding("ok", "memory", text)


def _alarms(facts: ServerReport) -> Iterator[DoctorFinding]:
    for alarm in facts.alarms:
        text = f"{alarm.text}; producers are stopped"
        yield DoctorFinding("wrong", "alarms", text, alarm.advice)


def _clients(facts: ServerReport) -> Iterator[DoctorFinding]:
    connected, most = facts.number("connected_clients"), facts.number("maxclients")
    if not most:
        return
    text = f"{connected:,} of at most {most:,} connections"
    if connected > _MANY * most:
        advice = "raise maxclients, and the limit of open files of the server"
        yield DoctorFinding("look", "clients", text, advice)
    else:
        yield DoctorFinding("ok", "clients", text)


def _clock(facts: ServerReport) -> Iterator[DoctorFinding]:
    if facts.ahead_s is None:
        return
    apart_s = abs(facts.ahead_s)
    side = "ahead of" if facts.ahead_s > 0 else "behind"
    if apart_s > CLOCK_LOOK_S:
        yield DoctorFinding(
            "wrong" if apart_s > CLOCK_WRONG_S else "look",
            "clock",
            f"this machine is {apart_s:.1f} s {side} the server",
            "synchronise both with NTP; beyond 5 s this machine leads no ChasquiMQ queue",
        )
    else:
        yield DoctorFinding("ok", "clock", "this machine and the server agree")


def _scripts(facts: ServerReport) -> Iterator[DoctorFinding]:
    if facts.script_refused is not None:
        text = f"scripts are refused: {facts.script_refused.text}"
        yield DoctorFinding("wrong", "scripts", text, f"allow +@scripting; {_ACL_GUIDE}")
    else:
        cached = facts.number("number_of_cached_scripts")
        yield DoctorFinding("ok", "scripts", f"scripts run; the server has cached {cached:,}")


def _permissions(facts: ServerReport) -> Iterator[DoctorFinding]:
    if not facts.asked:
        return
    protocols = [each for each in facts.asked if each not in ("every protocol", "journals")]
    usable = [each for each in protocols if each not in facts.forbidden]
    needed_by_all = "every protocol" in facts.forbidden
    for protocol, names in facts.forbidden.items():
        fatal = needed_by_all or not usable
        text = f"the user {facts.user} may not run {', '.join(names)}: {protocol} needs it"
        advice = _ACL_GUIDE if fatal else f"fine if you do not use it; else {_ACL_GUIDE}"
        yield DoctorFinding("wrong" if fatal else "look", "permissions", text, advice)
    if not facts.forbidden:
        text = f"the user {facts.user} may run what all protocols need"
        yield DoctorFinding("ok", "permissions", text)


def _name_and_version(facts: ServerReport) -> tuple[str, str]:
    if version := facts.info.get("valkey_version"):
        return "Valkey", version
    return "Redis", facts.info.get("redis_version", "")


_CHECKS: Final[tuple[Callable[[ServerReport], Iterator[DoctorFinding]], ...]] = (
    _server,
    _features,
    writes,
    _eviction,
    persistence,
    replicas,
    _memory,
    _alarms,
    _clients,
    _clock,
    _scripts,
    _permissions,
)
