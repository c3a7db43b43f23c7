"""RSMQ's audit: invariants of its keys, calls that find violations, and calls that repair them.

Each page is checked in one script, so a queue in use is not mistaken for a damaged one. A repair
checks again and changes nothing that has become valid meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tambomq.bulk.audit import Finding, Rule, shown
from tambomq.rsmq.keys import ATTRIBUTES, Keys, is_queue
from tambomq.store.call import Call, Plan, load_script, results

_MESSAGES = load_script("tambomq.rsmq.bulk", "audit_messages")
_FIELDS = load_script("tambomq.rsmq.bulk", "audit_fields")
_MEND = load_script("tambomq.rsmq.bulk", "audit_mend")

_PAGE: Final = 1000
_ID: Final = 32

BARE: Final = Rule(
    "rsmq.member-without-body",
    "an id is scheduled, but its body is missing; receives skip it",
    "delete the id",
)
BODY: Final = Rule(
    "rsmq.body-without-member",
    "a body is stored, but its id is not scheduled: no consumer can receive it",
    "make it visible now",
)
STRAY: Final = Rule(
    "rsmq.field-without-message",
    "a counter or a reason remains of a message that no longer exists",
    "delete the field",
)
ODD: Final = Rule(
    "rsmq.member-that-is-no-id", "a scheduled member is not an id that an RSMQ client can send"
)
SENT: Final = Rule(
    "rsmq.sent-less-than-held",
    "totalsent is not a number, or less than the number of stored messages",
    "set it to the number of stored messages",
)
ATTRIBUTE: Final = Rule(
    "rsmq.attribute-that-is-no-number",
    "an attribute is not a number: set it with `tambo rsmq queue set` to use the queue again",
)
UNLISTED: Final = Rule(
    "rsmq.queue-not-listed", "a queue exists, but is not in the set of queues", "add it to the set"
)
LISTED: Final = Rule(
    "rsmq.queue-without-attributes",
    "a queue is in the set of queues, but its attributes are missing",
    "remove it from the set, if it has no keys",
)
TYPE: Final = Rule("rsmq.key-of-another-type", "a key of a queue holds a value of another type")

RULES: Final = (BARE, BODY, STRAY, ODD, SENT, ATTRIBUTE, UNLISTED, LISTED, TYPE)
_WORDS: Final = {
    BARE.name: "bare",
    BODY.name: "body",
    STRAY.name: "stray",
    SENT.name: "sent",
    UNLISTED.name: "unlisted",
    LISTED.name: "listed",
}


def candidates(keys: Keys, cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and names of queues that some hash looks like."""
    words = (cursor, "MATCH", f"{keys.ns}:*:Q", "COUNT", _PAGE, "TYPE", "hash")
    return Call("SCAN", (), words, partial(_named, keys), repeatable=True)


def queue(keys: Keys, name: str) -> Plan[list[Finding]]:
    """Return what is wrong with the queue *name*, listed or not."""
    messages, data = keys.of(name)
    found = partial(Finding, queue=name)
    kinds = (_type(messages), _type(data))
    listed = Call("SISMEMBER", (keys.queues,), (name,), bool, repeatable=True)
    is_listed, *types = results((yield (listed, *kinds)))
    wrong = [
        found(TYPE, key=key, detail=f"a {kind}, not a {right}")
        for key, kind, right in zip((messages, data), types, ("zset", "hash"), strict=True)
        if kind not in (right, "none")
    ]
    if wrong:
        return wrong
    own = Call("HMGET", (data,), (*ATTRIBUTES, "totalsent"), list, repeatable=True)
    size = Call("ZCARD", (messages,), (), int, repeatable=True)
    (*attributes, sent), held = results((yield (own, size)))
    if attributes[0] is None:
        wrong += [found(LISTED, key=keys.queues, item=name.encode())] if is_listed else []
    else:
        wrong += [] if is_listed else [found(UNLISTED, key=data)]
        wrong += [
            found(ATTRIBUTE, key=data, item=field.encode(), detail=shown(value or b"nothing"))
            for field, value in zip(ATTRIBUTES, attributes, strict=True)
            if not _is_number(value)
        ]
        if not _is_number(sent or b"0") or float(sent or 0) < held:
            detail = f"{shown(sent or b'nothing')}, and {held} messages"
            wrong.append(found(SENT, key=data, item=b"totalsent", detail=detail))
    return wrong + (yield from _contents(keys, name))


def mend(keys: Keys, finding: Finding) -> Call[bool]:
    """Repair *finding*, if it is still there; whether it was."""
    call_keys = (keys.queues, *keys.of(finding.queue))
    args = (_WORDS[finding.rule.name], finding.item, finding.queue)
    return Call(_MEND, call_keys, args, bool, repeatable=True)


def _contents(keys: Keys, name: str) -> Plan[list[Finding]]:
    messages, data = own = keys.of(name)
    wrong: list[Finding] = []
    cursor = b"0"
    while True:
        page = Call(_MESSAGES, own, (cursor, _PAGE), list, repeatable=True)
        ((cursor, _, *ids),) = results((yield (page,)))
        wrong += [Finding(BARE if len(id) == _ID else ODD, name, messages, id) for id in ids]
        if cursor == b"0":
            break
    while True:
        page = Call(_FIELDS, own, (cursor, _PAGE), list, repeatable=True)
        ((cursor, *fields),) = results((yield (page,)))
        wrong += [Finding(BODY if len(f) == _ID else STRAY, name, data, f) for f in fields]
        if cursor == b"0":
            return wrong


def _type(key: str) -> Call[str]:
    return Call("TYPE", (key,), (), _word, repeatable=True)


def _word(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def _is_number(value: bytes | None) -> bool:
    try:
        return value is not None and float(value) == float(value)
    except ValueError:
        return False


def _named(keys: Keys, reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    texts = [key.decode("utf-8", "replace") for key in found]
    names = [text[len(keys.ns) + 1 : -2] for text in texts if text.startswith(f"{keys.ns}:")]
    return cursor, [name for name in names if is_queue(name)]
