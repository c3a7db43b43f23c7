"""GOMQ's audit: invariants of its keys, calls that find violations, and calls that repair them.

Keys that refer to each other are checked in one script, so keys in use are not mistaken for damaged
ones. A repair is the same script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from tambomq.bulk.audit import Finding, Rule, shown
from tambomq.gomq import keys, wire
from tambomq.gomq.bulk import scan as scan_ops
from tambomq.gomq.ops.messages import names
from tambomq.store.call import Call, Plan, load_script, results

_AUDIT = load_script("tambomq.gomq.bulk", "audit")
_PAGE: Final = 1000
_KEEP_S: Final = 3600

UNREADABLE: Final = Rule(
    "gomq.undecodable-message",
    "an element of a queue is not a message; peers receive an empty message for it",
)
NO_PEER: Final = Rule(
    "gomq.queue-without-peer",
    "messages wait for an unknown peer; they are neither observed nor requeued",
    "list it again: if it stays silent, it is disconnected, and its messages are requeued",
)
NO_SUBSCRIPTION: Final = Rule(
    "gomq.queue-without-subscription",
    "messages wait for a consumer that is not subscribed to their key",
)
UNLISTED: Final = Rule(
    "gomq.consumers-without-subscribed-key",
    "a key has consumers, but its messages are not dispatched",
    "list the key",
)
EMPTY: Final = Rule(
    "gomq.subscribed-key-without-consumers",
    "a key is listed for dispatch, but has no consumers",
    "remove the key from the list",
)
FORGOTTEN: Final = Rule(
    "gomq.consumer-without-subscription",
    "a consumer receives messages of a key that is not in its subscriptions",
    "note the subscription",
)
HALF: Final = Rule(
    "gomq.subscription-without-consumer",
    "a key is in the subscriptions of a consumer that receives no messages of it",
    "make it a consumer of the key",
)

RULES: Final = (UNREADABLE, NO_PEER, NO_SUBSCRIPTION, UNLISTED, EMPTY, FORGOTTEN, HALF)
_WORDS: Final = {
    NO_PEER.name: "peer",
    UNLISTED.name: "unlisted",
    EMPTY.name: "empty",
    FORGOTTEN.name: "pair",
    HALF.name: "pair",
}


class KeySpace(msgspec.Struct):
    """The keys of GOMQ in Redis, by prefix, as names without it."""

    queues: list[str] = []
    consumers: list[str] = []
    subscriptions: list[str] = []
    messages: list[str] = []


def space() -> Plan[KeySpace]:
    """Return which keys there are, of the types that they should have."""
    found = KeySpace()
    wanted = (
        (keys.QUEUE, "list", found.queues),
        (keys.CONSUMERS, "set", found.consumers),
        (keys.SUBSCRIPTIONS, "set", found.subscriptions),
        (keys.MESSAGES, "list", found.messages),
    )
    for prefix, kind, into in wanted:
        cursor = b"0"
        while True:
            words = (cursor, "MATCH", f"{prefix}*", "COUNT", _PAGE, "TYPE", kind)
            call = Call("SCAN", (), words, tuple, repeatable=True)
            ((cursor, page),) = results((yield (call,)))
            into += [name.removeprefix(prefix) for name in names(page)]
            if cursor == b"0":
                break
    return found


def everything(found: KeySpace) -> Plan[list[Finding]]:
    """Return the violations among the keys that were found."""
    subscribed = set(results((yield (_members(keys.SUBSCRIBED_KEYS),)))[0])
    consumers = yield from _sets(keys.CONSUMERS, found.consumers)
    subscriptions = yield from _sets(keys.SUBSCRIPTIONS, found.subscriptions)
    suspects = list(_suspects(subscribed, consumers, subscriptions))
    owners = {(key, name) for key, members in consumers.items() for name in members}
    suspects += _lists(found.messages, owners)
    wrong = [each for each in suspects if each.rule == NO_SUBSCRIPTION]
    suspects = [each for each in suspects if each.rule != NO_SUBSCRIPTION]
    wrong += yield from _confirmed(suspects)
    for key in found.queues:
        wrong += yield from _elements(key, keys.queue(key))
    for rest in found.messages:
        wrong += yield from _elements(rest, keys.MESSAGES + rest)
    return wrong


def _confirmed(suspects: list[Finding]) -> Plan[list[Finding]]:
    """Return those that a second check confirms: of a list with an ambiguous name, each reading."""
    wrong: dict[tuple[str, bytes, str], Finding] = {}
    sound = set()
    for first in range(0, len(suspects), _PAGE):
        page = suspects[first : first + _PAGE]
        answers = results((yield [_look(each, mend=False) for each in page]))
        for each, is_wrong in zip(page, answers, strict=True):
            if is_wrong:
                detail = "" if each.rule == NO_PEER else each.detail
                wrong.setdefault((each.key, each.item, detail), each)
            elif each.rule == NO_PEER:
                sound.add(each.key)
    return [each for each in wrong.values() if each.rule != NO_PEER or each.key not in sound]


def mend(finding: Finding) -> Call[bool]:
    """Repair *finding*, if it is still there; whether it was."""
    return _look(finding, mend=True)


def _look(finding: Finding, *, mend: bool) -> Call[bool]:
    other, mine, its, last = finding.hints
    args = (_WORDS[finding.rule.name], mine, its, int(mend), _KEEP_S)
    return Call(_AUDIT, (finding.key, other, last), args, bool, repeatable=True)


def _suspect(
    rule: Rule, queue: str, key: str, other: str, *, mine: str = "", its: str = "", last: str = ""
) -> Finding:
    detail = f"{other} has no {its}" if its else f"{other} is not there"
    return Finding(rule, queue, key, mine.encode(), detail, (other, mine, its, last or other))


def _suspects(
    subscribed: set[str], consumers: dict[str, list[str]], subscriptions: dict[str, list[str]]
) -> Iterator[Finding]:
    """Yield possible violations; some may only be changes between two reads."""
    every = keys.SUBSCRIBED_KEYS
    for key, members in consumers.items():
        own = keys.consumers(key)
        if keys.queue(key) not in subscribed:
            yield _suspect(UNLISTED, key, own, every, its=keys.queue(key))
        for consumer in members:
            if key not in subscriptions.get(consumer, ()):
                yield _suspect(
                    FORGOTTEN, key, own, keys.subscriptions(consumer), mine=consumer, its=key
                )
    for name in subscribed:
        key = name.removeprefix(keys.QUEUE)
        if key not in consumers:
            yield _suspect(EMPTY, key, every, keys.consumers(key), mine=name)
    for consumer, subscribed_keys in subscriptions.items():
        for key in subscribed_keys:
            if consumer not in consumers.get(key, ()):
                own = keys.subscriptions(consumer)
                yield _suspect(HALF, key, own, keys.consumers(key), mine=key, its=consumer)


def _lists(found: Iterable[str], owners: set[tuple[str, str]]) -> Iterator[Finding]:
    """Yield wrong lists; names may contain underscores, so each way to split one is tried."""
    prefixes = {f"{key}_{consumer}_": (key, consumer) for key, consumer in owners}
    for rest in found:
        places = [place + 1 for place, letter in enumerate(rest) if letter == "_"]
        ways = [prefixes[rest[:place]] for place in places if rest[:place] in prefixes]
        if not ways:
            yield Finding(NO_SUBSCRIPTION, rest, keys.MESSAGES + rest)
        for key, consumer in ways:
            peer = rest[len(key) + len(consumer) + 2 :]
            own, last = keys.messages(key, consumer, peer), keys.last_action(peer)
            yield _suspect(NO_PEER, key, own, keys.peers(consumer), its=peer, last=last)


def _sets(prefix: str, found: list[str]) -> Plan[dict[str, list[str]]]:
    members: dict[str, list[str]] = {}
    for first in range(0, len(found), _PAGE):
        page = found[first : first + _PAGE]
        answers = results((yield [_members(prefix + name) for name in page]))
        members |= {name: held for name, held in zip(page, answers, strict=True) if held}
    return members


def _elements(queue: str, key: str) -> Plan[list[Finding]]:
    wrong: list[Finding] = []
    first = 0
    while True:
        (page,) = results((yield (scan_ops.page(key, first, scan_ops.COUNT),)))
        wrong += [
            Finding(UNREADABLE, queue, key, b"%d" % (first + place), shown(element))
            for place, element in enumerate(page)
            if not wire.is_message(element)
        ]
        first += len(page)
        if len(page) < scan_ops.COUNT:
            return wrong


def _members(key: str) -> Call[list[str]]:
    return Call("SMEMBERS", (key,), (), _sorted, repeatable=True)


def _sorted(reply: Iterable[Any]) -> list[str]:
    return sorted(names(list(reply)))
