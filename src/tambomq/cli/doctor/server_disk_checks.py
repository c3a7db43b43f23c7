"""The checks of what survives a crash: writes, persistence and replicas. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tambomq.cli.doctor.facts import DoctorFinding, ServerReport

_LAG_S: Final = 10
_REPLICA: Final = re.compile(r"slave\d+")
_FAILED: Final = {
    "rdb_last_bgsave_status": "the last snapshot (RDB) could not be written",
    "aof_last_write_status": "the append-only file could not be written",
    "aof_last_bgrewrite_status": "the append-only file could not be rewritten",
}
_WHEN_REFUSED: Final = {
    "MISCONF": "the server cannot save: free space on its disk, see its log, then BGSAVE",
    "READONLY": "this is a replica: name the primary with --redis-url",
    "NOREPLICAS": "too few replicas are connected: start them, or lower min-replicas-to-write",
    "OOM": "memory is full: add workers, delete queues, or raise maxmemory",
    "NOPERM": "allow the user +@write; docs/guides/security.md has the rules",
}


def writes(facts: ServerReport) -> Iterator[DoctorFinding]:
    """Check that the server takes writes."""
    refused = facts.write_refused
    if refused is None:
        yield DoctorFinding("ok", "writes", "the server takes writes")
    else:
        advice = _WHEN_REFUSED.get(refused.kind, "see the log of the server")
        yield DoctorFinding("wrong", "writes", f"writes are refused: {refused.text}", advice)


def persistence(facts: ServerReport) -> Iterator[DoctorFinding]:
    """Check that a restart of the server does not lose messages."""
    for field, text in _FAILED.items():
        if facts.info.get(field, "ok") != "ok":
            advice = "free space on the server's disk, and see its log"
            yield DoctorFinding("wrong", "persistence", text, advice)
    if facts.info.get("loading") == "1":
        yield DoctorFinding("look", "persistence", "the server is still loading its data", "wait")
    if "aof_enabled" not in facts.info:
        return
    advice = "CONFIG SET appendonly yes, also in its configuration file"
    if facts.info["aof_enabled"] == "1":
        yield _append_only(facts.config.get("appendfsync", ""))
    elif facts.config.get("save") == "":
        text = "nothing is written to disk: a restart of the server loses all messages"
        yield DoctorFinding("wrong", "persistence", text, advice)
    else:
        text = "snapshots alone: a crash loses what was sent since the last one"
        yield DoctorFinding("look", "persistence", text, advice)


def replicas(facts: ServerReport) -> Iterator[DoctorFinding]:
    """Check the role of the server, and that its replicas follow."""
    if facts.info.get("role") == "slave":
        of = f"{facts.info.get('master_host', '?')}:{facts.info.get('master_port', '?')}"
        text, advice = f"this is a replica of {of}", "name the primary with --redis-url"
        yield DoctorFinding("wrong", "replicas", text, advice)
        return
    if "connected_slaves" not in facts.info:
        return
    states = [
        dict(pair.partition("=")[::2] for pair in value.split(","))
        for field, value in facts.info.items()
        if _REPLICA.fullmatch(field)
    ]
    late = [each for each in states if each.get("state") != "online" or _lag_s(each) > _LAG_S]
    needed = facts.config.get("min-replicas-to-write", "0")
    if late:
        names = ", ".join(f"{each.get('ip', '?')}:{each.get('port', '?')}" for each in late)
        advice = "see the log of the replica; a failover to it would lose messages"
        yield DoctorFinding("look", "replicas", f"not up to date: {names}", advice)
    elif states:
        text = f"{len(states)} connected, all up to date; {needed} needed for a write"
        yield DoctorFinding("ok", "replicas", text)
    else:
        yield DoctorFinding("ok", "replicas", "none: the data is on one machine alone")


def _append_only(fsync: str) -> DoctorFinding:
    if fsync == "no":
        return DoctorFinding(
            "look",
            "persistence",
            "the append-only file is flushed when the system likes to: a power cut loses more",
            "CONFIG SET appendfsync everysec",
        )
    how = {"everysec": ", flushed every second", "always": ", flushed with every write"}
    return DoctorFinding("ok", "persistence", f"append-only file{how.get(fsync, '')}")


def _lag_s(replica: dict[str, str]) -> int:
    lag = replica.get("lag", "0")
    return int(lag) if lag.isdigit() else 0
