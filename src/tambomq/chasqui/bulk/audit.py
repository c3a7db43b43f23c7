"""ChasquiMQ's audit: invariants of its keys, calls that find violations, calls that repair them.

Keys that refer to each other are checked in one script, so a queue in use is not mistaken for a
damaged one. A repair checks again and changes nothing that has become valid meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from tambomq.bulk.audit import Finding, Rule
from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.keys import ANY_QUEUE, Keys
from tambomq.chasqui.wire.envelope import (
    by_name,
    decode_envelope,
    decode_member,
    dialect_of,
    read_entry,
)
from tambomq.chasqui.wire.repeat import decode_spec
from tambomq.errors import RemoteProtocolError
from tambomq.store.call import Call, Plan, load_script, results

_PENDING = load_script("tambomq.chasqui.bulk", "audit_pending")
_INDEX = load_script("tambomq.chasqui.bulk", "audit_index")
_MEND = load_script("tambomq.chasqui.bulk", "audit_mend")

_PAGE: Final = 1000
_HOLDS_ANYTHING: Final = {b"decode_failed", b"malformed", b"oversize_payload"}
_KEY: Final = re.compile(r"\{chasqui:(.+?)\}:(\w+)(?::(.*))?", re.DOTALL)

ENTRY: Final = Rule(
    "chasqui.undecodable-entry",
    "an entry of the stream is not an envelope; no worker can run it",
    "move it to the dead-letter queue",
)
MEMBER: Final = Rule(
    "chasqui.undecodable-member",
    "a delayed job cannot be read; no worker will be able to run it",
    "move it to the dead-letter queue",
)
LETTER: Final = Rule(
    "chasqui.undecodable-letter", "a dead letter cannot be read, though its reason does not say so"
)
PENDING: Final = Rule(
    "chasqui.pending-without-entry",
    "a pending entry is not in the stream any more; it counts as active for ever",
    "acknowledge it",
)
MIXED: Final = Rule(
    "chasqui.mixed-dialects",
    "delayed jobs are stored in both dialects; existing workers read only one of them",
)
INDEX: Final = Rule(
    "chasqui.index-without-member",
    "didx refers to a delayed job that does not exist",
    "delete the index",
)
MARKER: Final = Rule(
    "chasqui.index-without-marker",
    "didx without dlid: the same job can be scheduled a second time",
    "set the marker, with the TTL of the index",
)
SCHEDULE: Final = Rule(
    "chasqui.schedule-without-spec",
    "a repeatable job is due, but its spec is missing or cannot be read",
    "forget the schedule",
)
SPEC: Final = Rule("chasqui.spec-without-schedule", "a recurring job is stored, but not scheduled")
BAD_SPEC: Final = Rule("chasqui.undecodable-spec", "a recurring job cannot be read")
LOCK: Final = Rule(
    "chasqui.lock-for-ever",
    "the lock has no TTL, so a dead leader is never replaced",
    "let the lock expire in five seconds",
)
TYPE: Final = Rule("chasqui.key-of-another-type", "a key of a queue holds a value of another type")

RULES: Final = (
    *(ENTRY, MEMBER, LETTER, PENDING, MIXED, INDEX, MARKER),
    *(SCHEDULE, SPEC, BAD_SPEC, LOCK, TYPE),
)
_WORDS: Final = {
    ENTRY.name: "entry",
    MEMBER.name: "member",
    PENDING.name: "pending",
    INDEX.name: "index",
    MARKER.name: "marker",
    SCHEDULE.name: "schedule",
    LOCK.name: "lock",
}


def space(cursor: bytes) -> Call[tuple[bytes, list[tuple[str, str, str]]]]:
    """Return the next cursor, and keys split into queue, kind and suffix."""
    words = (cursor, "MATCH", ANY_QUEUE, "COUNT", _PAGE)
    return Call("SCAN", (), words, _taken_apart, repeatable=True)


def queue(name: str) -> Plan[list[Finding]]:
    """Return the violations in the streams and sorted sets of the queue *name*."""
    keys = Keys(name)
    right = {
        keys.stream: "stream",
        keys.dlq: "stream",
        keys.events: "stream",
        keys.delayed: "zset",
        keys.repeat: "zset",
    }
    types = results((yield [_type(key) for key in right]))
    kinds = dict(zip(right, types, strict=True))
    found = [
        Finding(TYPE, name, key, detail=f"a {kind}, not a {right[key]}")
        for key, kind in kinds.items()
        if kind not in (right[key], "none")
    ]
    there = {key for key, kind in kinds.items() if kind == right[key]}
    if keys.stream in there:
        found += yield from _entries(name, keys.stream, ENTRY)
        found += yield from _pending(name, keys)
    if keys.dlq in there:
        found += yield from _entries(name, keys.dlq, LETTER)
    if keys.delayed in there:
        found += yield from _members(name, keys)
    if keys.repeat in there:
        found += yield from _schedules(name, keys)
    return found


def of_ids(name: str, ids: Iterable[str]) -> Plan[list[Finding]]:
    """Return the violations in the indexes of these delayed jobs."""
    keys, wanted = Keys(name), list(ids)
    calls = [_index(keys, id) for id in wanted]
    words = results((yield calls)) if calls else []
    rules = {b"member": INDEX, b"marker": MARKER}
    return [
        Finding(rules[word], name, keys.index(id), id.encode())
        for id, word in zip(wanted, words, strict=True)
        if word
    ]


def of_specs(name: str, specs: Iterable[str]) -> Plan[list[Finding]]:
    """Return which of these specs never fire, or cannot be read."""
    keys, wanted = Keys(name), list(specs)
    calls = [Call("ZSCORE", (keys.repeat,), (key,), _as_is, repeatable=True) for key in wanted]
    scores = results((yield calls)) if calls else []
    bodies = results((yield [scan_ops.spec(keys, key) for key in wanted])) if wanted else []
    found = []
    for key, score, (body, _) in zip(wanted, scores, bodies, strict=True):
        if body is not None and score is None:
            found.append(Finding(SPEC, name, keys.spec(key)))
        if body is not None and (why := _refused(decode_spec, body)):
            found.append(Finding(BAD_SPEC, name, keys.spec(key), detail=why))
    return found


def of_locks(name: str) -> Plan[list[Finding]]:
    """Return which locks of the queue never end."""
    keys = Keys(name)
    locks = (keys.promoter_lock, keys.scheduler_lock)
    left = results((yield [Call("PTTL", (key,), (), int, repeatable=True) for key in locks]))
    return [Finding(LOCK, name, key) for key, ms in zip(locks, left, strict=True) if ms == -1]


def mend(finding: Finding) -> Call[bool]:
    """Repair *finding*, if it is still there; whether it was."""
    keys, item = Keys(finding.queue), finding.item
    group = b""
    if finding.rule == PENDING:
        item, _, group = item.partition(b" ")
    own = finding.key
    if finding.rule == SCHEDULE:
        own = keys.spec(item.decode())
    marker = keys.marker(item.decode()) if finding.rule == MARKER else keys.marker("")
    call_keys = (keys.stream, keys.delayed, keys.dlq, keys.repeat, own, marker)
    return Call(_MEND, call_keys, (_WORDS[finding.rule.name], item, group), bool, repeatable=True)


def _entries(name: str, stream: str, rule: Rule) -> Plan[list[Finding]]:
    found: list[Finding] = []
    low = "-"
    while True:
        (rows,) = results((yield (scan_ops.page(stream, low, "+"),)))
        for id, fields in rows:
            if rule is LETTER and by_name(fields).get(b"reason") in _HOLDS_ANYTHING:
                continue
            body, _ = read_entry(fields)
            why = "it has no field d" if body is None else _refused(decode_envelope, body)
            if why:
                found.append(Finding(rule, name, stream, id, why))
        if len(rows) < scan_ops.COUNT:
            return found
        low = f"({rows[-1][0].decode()}"


def _pending(name: str, keys: Keys) -> Plan[list[Finding]]:
    found: list[Finding] = []
    groups = Call("XINFO GROUPS", (keys.stream,), (), _groups, repeatable=True)
    for group in results((yield (groups,)))[0]:
        first = b"-"
        while first:
            args = (group, first, _PAGE)
            call = Call(_PENDING, (keys.stream,), args, list, repeatable=True)
            ((last, *missing),) = results((yield (call,)))
            found += [Finding(PENDING, name, keys.stream, id + b" " + group) for id in missing]
            first = b"(" + last if last else b""
    return found


def _members(name: str, keys: Keys) -> Plan[list[Finding]]:
    found: list[Finding] = []
    dialects: dict[str, int] = {}
    cursor = b"0"
    while True:
        call = Call("ZSCAN", (keys.delayed,), (cursor, "COUNT", _PAGE), tuple, repeatable=True)
        ((cursor, page),) = results((yield (call,)))
        for member in page[::2]:
            if why := _refused(_envelope_in, member):
                found.append(Finding(MEMBER, name, keys.delayed, member, why))
            elif dialect := dialect_of(member):
                dialects[dialect] = dialects.get(dialect, 0) + 1
        if cursor == b"0":
            break
    if len(dialects) > 1:
        detail = " and ".join(f"{count} in {each}'s" for each, count in sorted(dialects.items()))
        found.append(Finding(MIXED, name, keys.delayed, detail=detail))
    return found


def _schedules(name: str, keys: Keys) -> Plan[list[Finding]]:
    call = Call("ZRANGE", (keys.repeat,), (0, -1), list, repeatable=True)
    (specs,) = results((yield (call,)))
    known = []
    for spec in specs:
        with suppress(UnicodeDecodeError):
            known.append(spec.decode())
    bodies = results((yield [scan_ops.spec(keys, key) for key in known])) if known else []
    return [
        Finding(SCHEDULE, name, keys.repeat, key.encode())
        for key, (body, _) in zip(known, bodies, strict=True)
        if body is None
    ]


def _index(keys: Keys, id: str) -> Call[bytes]:
    call_keys = (keys.delayed, keys.index(id), keys.marker(id))
    return Call(_INDEX, call_keys, (), bytes, repeatable=True)


def _envelope_in(member: bytes) -> None:
    decode_envelope(decode_member(member)[1])


def _refused(decode: Any, data: bytes) -> str:
    """Return why *data* cannot be read; '' if it can."""
    try:
        decode(data)
    except RemoteProtocolError as error:
        return str(error)
    return ""


def _type(key: str) -> Call[str]:
    return Call("TYPE", (key,), (), _word, repeatable=True)


def _word(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def _as_is(reply: Any) -> Any:
    return reply


def _groups(reply: list[Any]) -> list[bytes]:
    rows = [
        row if isinstance(row, dict) else dict(zip(row[::2], row[1::2], strict=True))
        for row in reply
    ]
    return [row[b"name"] for row in rows]


def _taken_apart(reply: list[Any]) -> tuple[bytes, list[tuple[str, str, str]]]:
    cursor, found = reply
    matches = (_KEY.fullmatch(key.decode("utf-8", "replace")) for key in found)
    return cursor, [(m[1], m[2], m[3] or "") for m in matches if m]
