"""Delayed jobs of the page's dialect made readable for a released engine, as plans.

The engine destroys a member that it cannot read. So whoever of ours sees signs of the engine, a
leader or a producer, stores what is left of the page's dialect in the engine's.
"""

from __future__ import annotations

from typing import Final

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire import decode_envelope, decode_member, dialect_of, encode_member
from tambomq.errors import RemoteProtocolError, TamboError
from tambomq.ids import ulid
from tambomq.store.call import Arg, Call, Plan, load_script

PAGE: Final = 250
"""Members that are looked at in one trip."""
CHUNK_BYTES: Final = 1 << 20
MOST: Final = 10_000
"""Members that are converted at once; the rest is for the next time."""
KEEP_S: Final = 24 * 3600
"""For how long nobody looks again, unless a member of the page's dialect is stored."""

_SIGNS = load_script("tambomq.chasqui", "signs", "prefix", "dialect")
_CONVERT = load_script("tambomq.chasqui", "convert")
_CONVERTED = load_script("tambomq.chasqui", "converted")

MUST_CONVERT: Final = 2
_UNKNOWN: Final = "?"


def signs(keys: Keys) -> Call[int]:
    """Ask whether a released engine shares the queue: 0 no, 1 yes, 2 and `convert` is needed."""
    return Call(_SIGNS, (keys.stream, *keys.signs), (), int, repeatable=True)


def convert(keys: Keys) -> Plan[int]:
    """Store members of the page's dialect in the engine's, the first due first; how many.

    Raises nothing: what the server does not answer is left for the next time.
    """
    walk = f"walk {ulid(0)}"
    count, low, skip = 0, b"-inf", 0
    yield (Call("SET", (keys.signs[-1],), (walk, "EX", KEEP_S), bool, repeatable=True),)
    while count < MOST:
        args = (low, "+inf", "WITHSCORES", "LIMIT", skip, PAGE)
        (rows,) = yield (Call("ZRANGEBYSCORE", (keys.delayed,), args, list, repeatable=True),)
        if isinstance(rows, TamboError):
            return count
        if not rows:
            yield (Call(_CONVERTED, (keys.signs[-1],), (walk, KEEP_S), bool, repeatable=True),)
            break
        members, scores = rows[::2], rows[1::2]
        # Scores do not change; members of one score are counted from its first.
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
    """Convert those of the page's dialect, about a megabyte by each call."""
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
