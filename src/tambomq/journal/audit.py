"""What must hold for journals, and how to see where it does not."""

from __future__ import annotations

from typing import Any, Final

from tambomq.journal import keys, ops
from tambomq.journal.wire import by_name, number
from tambomq.store.call import Call, Plan, results
from tambomq.store.findings import Finding, Rule

ENTRY: Final = Rule(
    "journal.undecodable-entry", "an entry does not say what happened, or when; readers skip it"
)
PROTOCOL: Final = Rule("journal.unknown-protocol", "a journal of no protocol; nobody reads it")

RULES: Final = (ENTRY, PROTOCOL)


def strangers(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and some keys that look like journals, and of whose protocol."""
    words = (cursor, "MATCH", keys.ANY, "COUNT", ops.COUNT, "TYPE", "stream")
    return Call("SCAN", (), words, _keys, repeatable=True)


def journal(key: str) -> Plan[list[Finding]]:
    """Return what is wrong with one of them."""
    protocol, queue = keys.owner_of(key)
    if protocol not in keys.PROTOCOLS:
        return [Finding(PROTOCOL, queue, key, told=protocol)]
    found: list[Finding] = []
    own, low = keys.Keys(protocol, queue), "-"
    while True:
        (page,) = results((yield (ops.read(own, low),)))
        for id, fields in page:
            known = by_name(fields)
            if not known.get(keys.EVENT) or number(known.get(keys.AT)) is None:
                found.append(Finding(ENTRY, queue, key, id))
        if len(page) < ops.COUNT:
            return found
        low = f"({page[-1][0].decode()}"


def _keys(reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    texts = (key.decode("utf-8", "replace") for key in found)
    return cursor, [text for text in texts if keys.owner_of(text) != ("", "")]
