"""What becomes of received RSMQ messages, as calls and plans nobody has made yet.

With a receipt an operation is done only while nobody else has received the
message since. Names, ids and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from tambomq.errors import InvalidValue
from tambomq.rsmq.keys import Keys, check_dead_queue, check_id
from tambomq.rsmq.model import Message, check_seconds
from tambomq.rsmq.ops import CHUNK
from tambomq.rsmq.recorded import recorded
from tambomq.rsmq.replies import existing
from tambomq.store.call import Arg, Call, Plan, Script, load_script, results

Held: TypeAlias = str | Message
"""A message to act on: by its id alone, or only while it is held as it was received."""

MOST_REASON = 4000
"""So many characters are kept of why a message is dead."""

_DELETE = load_script("tambomq.rsmq", "delete")
_DELETE_ONE = load_script("tambomq.rsmq", "delete_one")
_HIDE = load_script("tambomq.rsmq", "hide")
_BURY = load_script("tambomq.rsmq", "bury")


def delete(keys: Keys, queue: str, id: str, *, receipt: int | None = None) -> Call[bool]:
    """Forget a message; false if it is gone, or another's by now."""
    args = (check_id(id), _receipt(receipt))
    decode = partial(_is_done, queue)
    call = Call(_DELETE_ONE, keys.of(queue), args, decode, repeatable=True)
    return recorded(keys, queue, call)


def delete_batch(keys: Keys, queue: str, held: Iterable[Held]) -> Plan[list[bool]]:
    """Forget messages in one trip; for each whether it was there and ours."""
    calls = _in_chunks(_DELETE, keys, queue, (), held)
    return _all_done(recorded(keys, queue, call) for call in calls)


def hide(keys: Keys, queue: str, id: str, vt: float, *, receipt: int | None = None) -> Call[bool]:
    """Let a message be visible in *vt* seconds; false if it is gone, or another's by now."""
    args = (check_seconds("vt", vt), check_id(id), _receipt(receipt))
    return Call(_HIDE, keys.of(queue), args, partial(_first_done, queue), repeatable=True)


def hide_batch(keys: Keys, queue: str, held: Iterable[Held], vt: float) -> Plan[list[bool]]:
    """Let messages be visible in *vt* seconds; for each whether it was there and ours."""
    return _all_done(_in_chunks(_HIDE, keys, queue, (check_seconds("vt", vt),), held))


def bury(
    keys: Keys, queue: str, message: Message, dead: str, why: str, *, realtime: bool = False
) -> Call[bool]:
    """Move a held message to queue *dead*; false if it is gone, or another's by now."""
    own, other = keys.of(queue), keys.of(check_dead_queue(dead, of=queue))
    # An error may quote anything, at any length.
    reason = why[:MOST_REASON].encode("utf-8", "backslashreplace")
    args = (message.id, message.receipt, dead, reason, keys.notices(dead) if realtime else "")
    decode = partial(_is_done, queue)
    call = Call(_BURY, (*own, keys.queues, *other), args, decode, repeatable=True)
    return recorded(keys, queue, call)


def _receipt(receipt: int | None) -> Arg:
    if receipt is None:
        return ""
    if isinstance(receipt, bool) or not isinstance(receipt, int):
        raise InvalidValue("receipt", receipt, "the receipt of a received message")
    return receipt


def _in_chunks(
    script: Script, keys: Keys, queue: str, head: tuple[Arg, ...], held: Iterable[Held]
) -> Iterator[Call[list[bool]]]:
    pairs = [_pair(each) for each in held]
    for first in range(0, len(pairs), CHUNK):
        flat = [item for pair in pairs[first : first + CHUNK] for item in pair]
        decode = partial(_done, queue)
        yield Call(script, keys.of(queue), (*head, *flat), decode, repeatable=True)


def _pair(held: Held) -> tuple[str, Arg]:
    if isinstance(held, Message):
        return held.id, held.receipt
    return check_id(held), ""


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
