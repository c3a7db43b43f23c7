"""Audit rules of journals, and the calls that check them."""

from __future__ import annotations

from typing import Any, Final

from tambomq.bulk.audit import Finding, Rule
from tambomq.journal import keys, ops
from tambomq.journal.wire import by_name, number
from tambomq.store.call import Call, Plan, results

ENTRY: Final = Rule(
    "journal.undecodable-entry", "an entry does not say what happened, or when; readers skip it"
)
PROTOCOL: Final = Rule("journal.unknown-protocol", "a journal of no known protocol")

RULES: Final = (ENTRY, PROTOCOL)


def keys_like_journals(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor, and some keys that are named like journals of any protocol."""
    words = (cursor, "MATCH", keys.ANY, "COUNT", ops.COUNT, "TYPE", "stream")
    return Call("SCAN", (), words, _keys, repeatable=True)


def journal(key: str) -> Plan[list[Finding]]:
    """Return the findings of the journal *key*."""
    protocol, queue = keys.owner_of(key)
    if protocol not in keys.PROTOCOLS:
        return [Finding(PROTOCOL, queue, key, detail=protocol)]
    found: list[Finding] = []
    own, low = keys.JournalKeys(protocol, queue), "-"
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
