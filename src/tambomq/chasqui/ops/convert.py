"""Conversion of delayed jobs from the page dialect to the engine dialect.

A released engine deletes a delayed member that it cannot read. So when one of our leaders or
producers sees signs of the engine in a queue, it rewrites all members of the page dialect.
"""

from __future__ import annotations

from typing import Final

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, dialect_of, encode_member
from tambomq.errors import RemoteProtocolError, TamboError
from tambomq.ids import ulid
from tambomq.store.call import Arg, Call, Plan, load_script

PAGE: Final = 250
"""Members that are read in one round trip."""
CHUNK_BYTES: Final = 1 << 20
MAX_CONVERTED: Final = 10_000
"""Members that one conversion rewrites; the rest is left for the next one."""
KEEP_S: Final = 24 * 3600
"""A finished conversion is remembered for so long, unless a page member is stored."""

_DETECT_ENGINE = load_script("tambomq.chasqui.ops", "detect_engine")
_CONVERT = load_script("tambomq.chasqui.ops", "convert")
_CONVERTED = load_script("tambomq.chasqui.ops", "converted")

MUST_CONVERT: Final = 2
_UNKNOWN: Final = "?"


def signs(keys: Keys) -> Call[int]:
    """Detect a released engine on the queue: 0 no, 1 yes, 2 yes, and run `convert`."""
    return Call(_DETECT_ENGINE, (keys.stream, *keys.signs), (), int, repeatable=True)


def convert(keys: Keys) -> Plan[int]:
    """Rewrite members of the page dialect in the engine dialect, the first due first; how many.

    Raises nothing: after an error of the server the rest is left for the next conversion.
    """
    walk = f"walk {ulid(0)}"
    count, low, skip = 0, b"-inf", 0
    yield (Call("SET", (keys.signs[-1],), (walk, "EX", KEEP_S), bool, repeatable=True),)
    while count < MAX_CONVERTED:
        args = (low, "+inf", "WITHSCORES", "LIMIT", skip, PAGE)
        (rows,) = yield (Call("ZRANGEBYSCORE", (keys.delayed,), args, list, repeatable=True),)
        if isinstance(rows, TamboError):
            return count
        if not rows:
            yield (Call(_CONVERTED, (keys.signs[-1],), (walk, KEEP_S), bool, repeatable=True),)
            break
        members, scores = rows[::2], rows[1::2]
        # The next page begins at the last score, behind the members of that score already read.
        last = scores[-1]
        same = sum(score == last for score in scores)
        skip = skip + same if last == low else same
        low = last
        calls = _calls(keys, members)
        for outcome in (yield calls) if calls else ():
            if isinstance(outcome, TamboError):
                return count
            count += outcome
    return count


def _calls(keys: Keys, members: list[bytes]) -> list[Call[int]]:
    """Return the calls that convert the page members among *members*, about a megabyte each."""
    calls: list[Call[int]] = []
    indexes: list[str] = []
    words: list[Arg] = []
    size = 0
    for member in members:
        if dialect_of(member) != "page":
            continue
        try:
            name, envelope = decode_member(member)
        except RemoteProtocolError:
            continue
        indexes.append(keys.index(_id(envelope)))
        words += (member, encode_member(name, envelope, "engine"))
        size += len(member)
        if size > CHUNK_BYTES:
            calls.append(_call(keys, indexes, words))
            indexes, words, size = [], [], 0
    if words:
        calls.append(_call(keys, indexes, words))
    return calls


def _call(keys: Keys, indexes: list[str], words: list[Arg]) -> Call[int]:
    return Call(_CONVERT, (keys.delayed, *indexes), tuple(words), int, repeatable=True)


def _id(envelope: bytes) -> str:
    try:
        return decode_envelope(envelope).id
    except RemoteProtocolError:
        return _UNKNOWN
