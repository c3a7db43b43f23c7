"""RSMQ sends, receives, pops and peeks, as calls and plans that a store runs.

Names, ids and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from tambomq.errors import BatchIncomplete, MessageTooLong, TamboError
from tambomq.failures import without_traceback
from tambomq.ids import letters, names, unique
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import ID_SUFFIX_LENGTH, Keys
from tambomq.rsmq.model import Body, Message, check_count, check_seconds, to_bytes
from tambomq.rsmq.ops.replies import (
    FULL,
    id_text,
    queue_full,
    require_queue,
    score_to_ms,
    to_count,
)
from tambomq.store.call import Arg, Call, Plan, load_script, results, template

# A script blocks the server for all clients; 500 sends take 2 ms.
CHUNK = 500

FORMS = 1024
"""Queues for which the command of a frequent script is kept, packed but for its last words."""

_SEND = load_script("tambomq.rsmq.ops", "send")
_RECEIVE = load_script("tambomq.rsmq.ops", "receive")
_RECEIVE_ONE = load_script("tambomq.rsmq.ops", "receive_one")
_POP = load_script("tambomq.rsmq.ops", "pop")
_PEEK = load_script("tambomq.rsmq.ops", "peek")


class ReceiveResult(msgspec.Struct, frozen=True, gc=False):
    """The messages of a receive or, without one, when to poll again."""

    messages: list[Message]
    next_in_ms: int | None = None
    """Time until the next message becomes visible; `None` if no message is hidden."""
    now_ms: int = 0
    """The server's time if no message was visible; 0 if the script did not report it."""

    @property
    def first(self) -> Message | None:
        """The first message, or `None`."""
        return self.messages[0] if self.messages else None

    @property
    def needs_retry(self) -> bool:
        """Whether the script met damaged entries and left the rest for another call."""
        return not self.messages and self.next_in_ms == 0


# ── send ─────────────────────────────────────────────────────────────────────


def send(
    keys: Keys,
    queue: str,
    body: Body,
    *,
    delay: float | None = None,
    realtime: bool = False,
    journal: JournalPolicy | None = None,
) -> Call[str]:
    """Put a message on a queue and return its id."""
    stored = to_bytes(body)
    suffixed = (letters(ID_SUFFIX_LENGTH), stored)
    args = (
        _seconds("delay", delay),
        len(stored),
        keys.realtime_channel(queue) if realtime else "",
        0,
        *suffixed,
    )
    call = Call(_SEND, keys.to_send(queue), args, partial(_decode_sent_one, queue, len(stored)))
    return recorded(journal, queue, call, entries=1, size=len(stored))


def send_batch(
    keys: Keys,
    queue: str,
    bodies: Iterable[Body],
    *,
    delay: float | None = None,
    realtime: bool = False,
    journal: JournalPolicy | None = None,
) -> Plan[list[str]]:
    """Put messages on a queue in one round trip and return their ids, in order.

    One body that is too long fails the whole batch. If some of the scripts, of `CHUNK`
    messages each, fail on the server, `BatchIncomplete` lists the missing ids.
    """
    queue_keys = keys.to_send(queue)
    stored = [to_bytes(body) for body in bodies]
    longest = max(map(len, stored), default=0)
    head = (_seconds("delay", delay), longest, keys.realtime_channel(queue) if realtime else "")
    decode = partial(_decode_sent, queue, longest)
    calls = []
    chunks = [stored[first : first + CHUNK] for first in range(0, len(stored), CHUNK)]
    for number, chunk in enumerate(chunks):
        suffixes = names(len(chunk), ID_SUFFIX_LENGTH)
        pairs = [item for pair in zip(suffixes, chunk, strict=True) for item in pair]
        call = Call(_SEND, queue_keys, (*head, number * CHUNK, *pairs), decode)
        size = sum(map(len, chunk))
        calls.append(recorded(journal, queue, call, entries=len(chunk), size=size))
    return _merge_sent(queue, calls, list(map(len, chunks)))


def send_together(queue: str, calls: Sequence[Call[str]]) -> Call[list[str]]:
    """Merge calls of `send`, with the same delay and no journal, into one that returns their ids.

    One body that is too long fails them all.
    """
    first = calls[0]
    delay, _, channel, *_ = first.args
    longest = max(len(call.args[5]) for call in calls)  # type: ignore[arg-type]
    pairs = [arg for call in calls for arg in call.args[4:]]
    decode = partial(_decode_sent, queue, longest)
    return Call(_SEND, first.keys, (delay, longest, channel, 0, *pairs), decode)


def _merge_sent(
    queue: str, calls: Sequence[Call[list[str]]], sizes: Sequence[int]
) -> Plan[list[str]]:
    outcomes = (yield calls) if calls else []
    failures = [outcome for outcome in outcomes if isinstance(outcome, TamboError)]
    if 0 < len(failures) < len(outcomes):
        partial_ids: list[str | None] = []
        for outcome, size in zip(outcomes, sizes, strict=True):
            partial_ids += [None] * size if isinstance(outcome, TamboError) else outcome
        raise BatchIncomplete(queue, partial_ids) from failures[0]
    return [id for ids in results(outcomes) for id in ids]


def _decode_sent(queue: str, longest: int, reply: Any) -> list[str]:
    if isinstance(reply, int):
        raise MessageTooLong(queue, longest, reply)
    if isinstance(reply, list) and reply[:1] == [FULL]:
        raise queue_full(queue, reply)
    return [id.decode() for id in require_queue(queue, reply)]


def _decode_sent_one(queue: str, size: int, reply: Any) -> str:
    return _decode_sent(queue, size, reply)[0]


# ── receive ──────────────────────────────────────────────────────────────────


def receive(
    keys: Keys,
    queue: str,
    count: int = 1,
    *,
    vt: float | None = None,
    journal: JournalPolicy | None = None,
) -> Call[ReceiveResult]:
    """Receive and hide up to *count* (at most `CHUNK`) of the oldest visible messages."""
    token = unique()
    args = (min(check_count(count), CHUNK), _seconds("vt", vt), token)
    call = Call(_RECEIVE, keys.to_receive(queue), args, partial(_decode_received, queue, token))
    return recorded(journal, queue, call)


def receive_one(
    keys: Keys, queue: str, *, vt: float | None = None, journal: JournalPolicy | None = None
) -> Call[ReceiveResult]:
    """Receive and hide the oldest visible message; if it `needs_retry`, use `receive`."""
    token, of_queue = unique(), keys.to_receive(queue)
    decode = partial(_decode_received_one, queue, token)
    packed = _receive_form(of_queue) % (len(token), token.encode()) if vt is None else None
    args = (_seconds("vt", vt), token)
    return recorded(journal, queue, Call(_RECEIVE_ONE, of_queue, args, decode, packed=packed))


@lru_cache(maxsize=FORMS)
def _receive_form(keys: tuple[str, ...]) -> bytes:
    return template("EVALSHA", _RECEIVE_ONE.sha, len(keys), *keys, "", None)


def receive_batch(
    keys: Keys,
    queue: str,
    count: int,
    *,
    vt: float | None = None,
    journal: JournalPolicy | None = None,
) -> Plan[ReceiveResult]:
    """Receive up to *count* of the oldest visible messages in one round trip."""
    sizes = [min(CHUNK, count - first) for first in range(0, check_count(count), CHUNK)]
    calls = [receive(keys, queue, size, vt=vt, journal=journal) for size in sizes]
    one = [receive_one(keys, queue, vt=vt, journal=journal)] if count == 1 else calls
    return _merge_received(one, calls)


def _merge_received(
    calls: Sequence[Call[ReceiveResult]], again: Sequence[Call[ReceiveResult]]
) -> Plan[ReceiveResult]:
    while True:
        outcomes = yield calls
        # Messages that one script received are hidden now: return them even if a later one failed.
        received = [each for each in outcomes if isinstance(each, ReceiveResult)]
        received = received or results(outcomes)
        # A short vt may end before the last script runs: a message received twice counts once.
        messages = {message.id: message for result in received for message in result.messages}
        last = received[-1]
        if messages or not last.needs_retry:
            return ReceiveResult(list(messages.values()), last.next_in_ms, last.now_ms)
        calls = again


def _decode_received_one(queue: str, token: str, reply: Any) -> ReceiveResult:
    if not isinstance(reply, list) or not reply[0]:
        return _decode_received(queue, token, reply)
    visible_at, id, body, rc, fr = reply
    return ReceiveResult([Message(id_text(id), body, rc, fr, visible_at, None, token)])


def _decode_received(queue: str, token: str, reply: Any) -> ReceiveResult:
    reply = require_queue(queue, reply)
    visible_at = reply[0]
    if not visible_at:
        return ReceiveResult([], None if reply[1] < 0 else reply[1], *reply[2:3])
    fields = iter(reply[1:])
    return ReceiveResult(
        [
            Message(id_text(id), body, rc, fr, visible_at, None, token)
            for id, body, rc, fr in zip(fields, fields, fields, fields, strict=True)
        ]
    )


def pop(keys: Keys, queue: str, *, journal: JournalPolicy | None = None) -> Plan[Message | None]:
    """Receive and delete the oldest visible message; `None` without one."""

    def decode(reply: Any) -> list[Message] | None:
        now, *fields = require_queue(queue, reply)
        if not now:
            return None
        if not fields:
            return []
        id, body, rc, fr = fields
        return [Message(id_text(id), body, rc, fr, now)]

    call = recorded(journal, queue, Call(_POP, keys.to_receive(queue), (), decode))
    popped = None
    while popped is None:
        popped = results((yield (call,)))[0]
    return popped[0] if popped else None


def peek(keys: Keys, queue: str, count: int, *, first: int = 0) -> Call[list[Message]]:
    """Return messages in the order they are or become visible, without changing anything."""

    def decode(reply: Any) -> list[Message]:
        found = []
        for visible_at, id, body, rc, fr, why, receipt in require_queue(queue, reply):
            reason, trace = (None, None) if why is None else reason_of(why)
            message = Message(
                id=id_text(id),
                body=body,
                rc=to_count(rc),
                fr=to_count(fr),
                visible_at=score_to_ms(visible_at),
                reason=reason,
                token=receipt.partition(b"-")[2].decode("ascii", "replace"),
                traceback=trace,
            )
            found.append(message)
        return found

    args = (check_count(first, minimum=0, maximum=2**53), check_count(count))
    return Call(_PEEK, keys.all_of(queue), args, decode, repeatable=True)


def reason_of(why: bytes) -> tuple[str, str | None]:
    """Split a stored dead-letter reason into the reason and its traceback, if it has one."""
    return without_traceback(why.decode("utf-8", "replace"))


def _seconds(what: str, value: float | None) -> Arg:
    return "" if value is None else check_seconds(what, value)
