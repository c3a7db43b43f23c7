"""What becomes of received RSMQ messages, as calls and plans nobody has made yet.

With a receipt an operation is done only while that delivery is the message's last.
Names, ids and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from tambomq.errors import InvalidValue
from tambomq.failures import MAX_TRACEBACK, with_traceback, without_traceback
from tambomq.rsmq.keys import Keys, check_dead_queue, check_id
from tambomq.rsmq.model import Message, check_seconds
from tambomq.rsmq.ops import CHUNK
from tambomq.rsmq.recorded import recorded
from tambomq.rsmq.replies import existing, id_arg
from tambomq.store.call import Arg, Call, Plan, Script, load_script, results

Held: TypeAlias = str | Message | tuple[str, str]
"""A message to act on: by its id alone, or only while its receipt counts; or both as a pair."""

MOST_REASON = 4000
"""So many characters are kept of why a message is dead, besides the traceback."""

_DELETE = load_script("tambomq.rsmq", "delete", "receipts")
_DELETE_ONE = load_script("tambomq.rsmq", "delete_one", "receipts")
_HIDE = load_script("tambomq.rsmq", "hide", "receipts", "record")
_BURY = load_script("tambomq.rsmq", "bury", "receipts")


def delete(keys: Keys, queue: str, id: str, *, receipt: str | None = None) -> Call[bool]:
    """Forget a message; false if it is gone, or another's by now."""
    args = _held(id, receipt)
    decode = partial(_is_done, queue)
    call = Call(_DELETE_ONE, keys.all_of(queue), args, decode, repeatable=True)
    return recorded(keys, queue, call)


def delete_batch(keys: Keys, queue: str, held: Iterable[Held]) -> Plan[list[bool]]:
    """Forget messages in one trip; for each whether it was there and ours."""
    calls = _in_chunks(_DELETE, keys, queue, (), held)
    return _all_done(recorded(keys, queue, call) for call in calls)


def hide(keys: Keys, queue: str, id: str, vt: float, *, receipt: str | None = None) -> Call[bool]:
    """Let a message be visible in *vt* seconds; false if it is gone, or another's by now."""
    args = (check_seconds("vt", vt), *_held(id, receipt))
    return Call(_HIDE, keys.all_of(queue), args, partial(_first_done, queue), repeatable=True)


def hide_batch(keys: Keys, queue: str, held: Iterable[Held], vt: float) -> Plan[list[bool]]:
    """Let messages be visible in *vt* seconds; for each whether it was there and ours."""
    return _all_done(_in_chunks(_HIDE, keys, queue, (check_seconds("vt", vt),), held))


def bury(
    keys: Keys, queue: str, message: Message, dead: str, why: str, *, realtime: bool = False
) -> Call[bool]:
    """Move a held message to queue *dead*; false if it is gone, or another's by now."""
    own, other = keys.of(queue), keys.of(check_dead_queue(dead, of=queue))
    where = (*own, keys.queues, *other, keys.receipts(queue))
    # An error may quote anything, at any length; a traceback has been cut already.
    said, trace = without_traceback(why)
    kept = with_traceback(said[:MOST_REASON], (trace or "")[:MAX_TRACEBACK])
    reason = kept.encode("utf-8", "backslashreplace")
    notices = keys.notices(dead) if realtime else ""
    args = (id_arg(message.id), message.receipt, dead, reason, notices)
    decode = partial(_is_done, queue)
    call = Call(_BURY, where, args, decode, repeatable=True)
    return recorded(keys, queue, call)


def _receipt(receipt: str | None) -> Arg:
    if receipt is None:
        return ""
    # An empty one would be taken for none.
    if not isinstance(receipt, str) or not receipt:
        raise InvalidValue("receipt", receipt, "the receipt of a received message")
    return receipt


def _in_chunks(
    script: Script, keys: Keys, queue: str, head: tuple[Arg, ...], held: Iterable[Held]
) -> Iterator[Call[list[bool]]]:
    pairs = [_pair(each) for each in held]
    for first in range(0, len(pairs), CHUNK):
        flat = [item for pair in pairs[first : first + CHUNK] for item in pair]
        decode = partial(_done, queue)
        yield Call(script, keys.all_of(queue), (*head, *flat), decode, repeatable=True)


def _pair(held: Held) -> tuple[Arg, Arg]:
    if isinstance(held, Message):
        return id_arg(held.id), held.receipt
    if isinstance(held, tuple):
        return _held(*held)
    return _held(held, None)


def _held(id: str, receipt: str | None) -> tuple[Arg, Arg]:
    """Return what names a message; one that was received may have any id."""
    checked = _receipt(receipt)
    is_received = checked and isinstance(id, str)
    return id_arg(id if is_received else check_id(id)), checked


def _all_done(calls: Iterable[Call[list[bool]]]) -> Plan[list[bool]]:
    trip = list(calls)
    outcomes = (yield trip) if trip else []
    return [flag for flags in results(outcomes) for flag in flags]


def _done(queue: str, reply: Any) -> list[bool]:
    return [bool(flag) for flag in existing(queue, reply)]


def _first_done(queue: str, reply: Any) -> bool:
    return _done(queue, reply)[0]


def _is_done(queue: str, reply: Any) -> bool:
    return bool(existing(queue, reply))
