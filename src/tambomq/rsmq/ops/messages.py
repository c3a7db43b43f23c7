"""How RSMQ messages come and go: sends and receives, as calls and plans nobody has made yet.

Names, ids and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.errors import BatchIncomplete, MessageTooLong, TamboError
from tambomq.failures import without_traceback
from tambomq.ids import letters, names, unique
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.model import Body, Message, check_count, check_seconds, to_bytes
from tambomq.rsmq.recorded import recorded
from tambomq.rsmq.replies import existing, id_text, moment, tally
from tambomq.store.call import Arg, Call, Plan, load_script, results

# A script keeps the server from everybody else; 500 sends take it 2 ms.
CHUNK = 500

_SEND = load_script("tambomq.rsmq", "send")
_RECEIVE = load_script("tambomq.rsmq", "receive", "record", "rewind")
_RECEIVE_ONE = load_script("tambomq.rsmq", "receive_one", "record")
_POP = load_script("tambomq.rsmq", "pop")
_PEEK = load_script("tambomq.rsmq", "peek", "receipts")
_REWIND = load_script("tambomq.rsmq", "rewind", "rewind")


class Haul(msgspec.Struct, frozen=True, gc=False):
    """What a receive brought: messages or, without one, when to look again."""

    messages: list[Message]
    next_in_ms: int | None = None
    """When something becomes visible; `None` when nothing is going to."""
    now_ms: int = 0
    """The server's time when nothing was visible; 0 if it did not say."""

    @property
    def first(self) -> Message | None:
        """The one message of a receive of one."""
        return self.messages[0] if self.messages else None

    @property
    def is_final(self) -> bool:
        """False: the script met damage and left the rest to another look."""
        return bool(self.messages) or self.next_in_ms != 0


# ── send ─────────────────────────────────────────────────────────────────────


def send(
    keys: Keys, queue: str, body: Body, *, delay: float | None = None, realtime: bool = False
) -> Call[str]:
    """Put a message on a queue; its id."""
    stored = to_bytes(body)
    suffixed = (letters(ID_SUFFIX_LENGTH), stored)
    args = (
        _seconds("delay", delay),
        len(stored),
        keys.notices(queue) if realtime else "",
        0,
        *suffixed,
    )
    call = Call(_SEND, keys.of(queue), args, partial(_sent_one, queue, len(stored)))
    return recorded(keys, queue, call, entries=1, size=len(stored))


def send_batch(
    keys: Keys,
    queue: str,
    bodies: Iterable[Body],
    *,
    delay: float | None = None,
    realtime: bool = False,
) -> Plan[list[str]]:
    """Put messages on a queue in one trip; their ids, in order.

    A body that is too long stops all of them. If the server fails some of the
    scripts, of `CHUNK` messages each, `BatchIncomplete` tells which.
    """
    own = keys.of(queue)
    stored = [to_bytes(body) for body in bodies]
    longest = max(map(len, stored), default=0)
    head = (_seconds("delay", delay), longest, keys.notices(queue) if realtime else "")
    decode = partial(_sent, queue, longest)
    calls = []
    chunks = [stored[first : first + CHUNK] for first in range(0, len(stored), CHUNK)]
    for number, chunk in enumerate(chunks):
        suffixes = names(len(chunk), ID_SUFFIX_LENGTH)
        pairs = [item for pair in zip(suffixes, chunk, strict=True) for item in pair]
        call = Call(_SEND, own, (*head, number * CHUNK, *pairs), decode)
        size = sum(map(len, chunk))
        calls.append(recorded(keys, queue, call, entries=len(chunk), size=size))
    return _whole_batch(queue, calls, list(map(len, chunks)))


def _whole_batch(
    queue: str, calls: Sequence[Call[list[str]]], sizes: Sequence[int]
) -> Plan[list[str]]:
    outcomes = (yield calls) if calls else []
    failures = [outcome for outcome in outcomes if isinstance(outcome, TamboError)]
    if 0 < len(failures) < len(outcomes):
        places: list[str | None] = []
        for outcome, size in zip(outcomes, sizes, strict=True):
            places += [None] * size if isinstance(outcome, TamboError) else outcome
        raise BatchIncomplete(queue, places) from failures[0]
    return [id for ids in results(outcomes) for id in ids]


def _sent(queue: str, longest: int, reply: Any) -> list[str]:
    if isinstance(reply, int):
        raise MessageTooLong(queue, longest, reply)
    return [id.decode() for id in existing(queue, reply)]


def _sent_one(queue: str, size: int, reply: Any) -> str:
    return _sent(queue, size, reply)[0]


# ── receive ──────────────────────────────────────────────────────────────────


def receive(keys: Keys, queue: str, count: int = 1, *, vt: float | None = None) -> Call[Haul]:
    """Take up to *count* (at most `CHUNK`) of the oldest visible messages and hide them."""
    token = unique()
    args = (min(check_count(count), CHUNK), _seconds("vt", vt), token)
    call = Call(_RECEIVE, keys.all_of(queue), args, partial(_haul, queue, token))
    return recorded(keys, queue, call)


def receive_one(keys: Keys, queue: str, *, vt: float | None = None) -> Call[Haul]:
    """Take the oldest visible message and hide it; not final if that takes `receive`."""
    token = unique()
    args = (_seconds("vt", vt), token)
    call = Call(_RECEIVE_ONE, keys.all_of(queue), args, partial(_haul, queue, token))
    return recorded(keys, queue, call)


def receive_batch(keys: Keys, queue: str, count: int, *, vt: float | None = None) -> Plan[Haul]:
    """Take up to *count* of the oldest visible messages in one trip."""
    sizes = [min(CHUNK, count - first) for first in range(0, check_count(count), CHUNK)]
    calls = [receive(keys, queue, size, vt=vt) for size in sizes]
    return _whole_haul([receive_one(keys, queue, vt=vt)] if count == 1 else calls, calls)


def _whole_haul(calls: Sequence[Call[Haul]], again: Sequence[Call[Haul]]) -> Plan[Haul]:
    while True:
        outcomes = yield calls
        # What one script took is hidden now; it is handed over even if a later one failed.
        hauls = [outcome for outcome in outcomes if isinstance(outcome, Haul)] or results(outcomes)
        # A short vt may be over before the last script: a message it took again counts once.
        taken = {message.id: message for haul in hauls for message in haul.messages}
        if taken or hauls[-1].is_final:
            return Haul(list(taken.values()), hauls[-1].next_in_ms, hauls[-1].now_ms)
        calls = again


def _haul(queue: str, token: str, reply: Any) -> Haul:
    reply = existing(queue, reply)
    visible_at = reply[0]
    if not visible_at:
        return Haul([], None if reply[1] < 0 else reply[1], *reply[2:3])
    fields = iter(reply[1:])
    return Haul(
        [
            Message(id_text(id), body, rc, fr, visible_at, None, token)
            for id, body, rc, fr in zip(fields, fields, fields, fields, strict=True)
        ]
    )


def rewind(keys: Keys, queue: str) -> Plan[int]:
    """Hide messages anew that were hidden by a clock which was set back since; how many.

    Harmless at any time: a message counts only if it was hidden later than it is now.
    """
    messages, _, receipts = keys.all_of(queue)
    cursor, total = b"0", 0
    while True:
        page = Call(_REWIND, (messages, receipts), (cursor,), list, repeatable=True)
        ((cursor, count),) = results((yield (page,)))
        total += int(count)
        if cursor == b"0":
            return total


def pop(keys: Keys, queue: str) -> Plan[Message | None]:
    """Take the oldest visible message and forget it; `None` without one."""

    def decode(reply: Any) -> list[Message] | None:
        now, *fields = existing(queue, reply)
        if not now:
            return None
        if not fields:
            return []
        id, body, rc, fr = fields
        return [Message(id_text(id), body, rc, fr, now)]

    call = recorded(keys, queue, Call(_POP, keys.all_of(queue), (), decode))
    popped = None
    while popped is None:
        popped = results((yield (call,)))[0]
    return popped[0] if popped else None


def peek(keys: Keys, queue: str, count: int, *, first: int = 0) -> Call[list[Message]]:
    """Look at messages in the order they are or become visible, changing nothing."""

    def decode(reply: Any) -> list[Message]:
        found = []
        for visible_at, id, body, rc, fr, why, receipt in existing(queue, reply):
            reason, trace = (None, None) if why is None else reason_of(why)
            message = Message(
                id=id_text(id),
                body=body,
                rc=tally(rc),
                fr=tally(fr),
                visible_at=moment(visible_at),
                reason=reason,
                token=receipt.partition(b"-")[2].decode("ascii", "replace"),
                traceback=trace,
            )
            found.append(message)
        return found

    args = (check_count(first, least=0, most=2**53), check_count(count))
    return Call(_PEEK, keys.all_of(queue), args, decode, repeatable=True)


def reason_of(why: bytes) -> tuple[str, str | None]:
    """Return why a message is dead, and where its handler raised that, if a worker said."""
    return without_traceback(why.decode("utf-8", "replace"))


def _seconds(what: str, value: float | None) -> Arg:
    return "" if value is None else check_seconds(what, value)
