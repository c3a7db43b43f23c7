"""Settling received RSMQ messages (delete, hide, bury), as calls and plans that a store runs.

With a receipt, an operation applies only while that delivery is the message's latest.
Names, ids and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

from tambomq.errors import InvalidValue
from tambomq.failures import MAX_TRACEBACK, with_traceback, without_traceback
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import Keys, check_dead_queue, check_id
from tambomq.rsmq.model import Message, check_seconds
from tambomq.rsmq.ops.messages import CHUNK, FORMS
from tambomq.rsmq.ops.replies import id_arg, require_queue
from tambomq.store.call import Arg, Call, Plan, Script, load_script, results, template

MessageRef: TypeAlias = str | Message | tuple[str, str]
"""A message to settle: an id (unconditional), a `Message`, or an id and its receipt."""

MAX_REASON_CHARS = 4000
"""Characters kept of a dead-letter reason, besides the traceback."""

_DELETE = load_script("tambomq.rsmq.ops", "delete")
_DELETE_ONE = load_script("tambomq.rsmq.ops", "delete_one")
_HIDE = load_script("tambomq.rsmq.ops", "hide")
_BURY = load_script("tambomq.rsmq.ops", "bury")


def delete(
    keys: Keys,
    queue: str,
    id: str,
    *,
    receipt: str | None = None,
    journal: JournalPolicy | None = None,
) -> Call[bool]:
    """Delete a message; false if it is gone or was received again."""
    stored, proof = args = _message_args(id, receipt)
    of_queue, decode = keys.all_of(queue), partial(_decode_flag, queue)
    key = stored.encode() if isinstance(stored, str) else stored
    packed = _delete_form(of_queue) % (len(key), key) if proof == "" else None
    call = Call(_DELETE_ONE, of_queue, args, decode, repeatable=True, packed=packed)
    return recorded(journal, queue, call)


@lru_cache(maxsize=FORMS)
def _delete_form(keys: tuple[str, ...]) -> bytes:
    return template("EVALSHA", _DELETE_ONE.sha, len(keys), *keys, None, "")


def delete_together(queue: str, calls: Sequence[Call[bool]]) -> Call[list[bool]]:
    """Merge calls of `delete`, without a journal, into one that returns their results."""
    args = tuple(arg for call in calls for arg in call.args)
    return Call(_DELETE, calls[0].keys, args, partial(_decode_flags, queue), repeatable=True)


def delete_batch(
    keys: Keys, queue: str, messages: Iterable[MessageRef], *, journal: JournalPolicy | None = None
) -> Plan[list[bool]]:
    """Delete messages in one round trip; for each, whether it was deleted."""
    calls = _chunked_calls(_DELETE, keys, queue, (), messages)
    return _collect_flags(recorded(journal, queue, call) for call in calls)


def hide(keys: Keys, queue: str, id: str, vt: float, *, receipt: str | None = None) -> Call[bool]:
    """Make a message visible in *vt* seconds; false if it is gone or was received again."""
    args = (check_seconds("vt", vt), *_message_args(id, receipt))
    return Call(
        _HIDE, keys.all_of(queue), args, partial(_decode_first_flag, queue), repeatable=True
    )


def hide_batch(
    keys: Keys, queue: str, messages: Iterable[MessageRef], vt: float
) -> Plan[list[bool]]:
    """Make messages visible in *vt* seconds; for each, whether it was changed."""
    return _collect_flags(_chunked_calls(_HIDE, keys, queue, (check_seconds("vt", vt),), messages))


def bury(
    keys: Keys,
    queue: str,
    message: Message,
    dead: str,
    why: str,
    *,
    realtime: bool = False,
    journal: JournalPolicy | None = None,
) -> Call[bool]:
    """Move a received message to queue *dead*; false if it is gone or was received again."""
    queue_keys, dead_keys = keys.of(queue), keys.of(check_dead_queue(dead, of=queue))
    redis_keys = (*queue_keys, keys.queues, *dead_keys, keys.receipts(queue))
    # An error text may have any length and any character; a traceback has been cut already.
    reason, trace = without_traceback(why)
    text = with_traceback(reason[:MAX_REASON_CHARS], (trace or "")[:MAX_TRACEBACK])
    stored = text.encode("utf-8", "backslashreplace")
    channel = keys.realtime_channel(dead) if realtime else ""
    args = (id_arg(message.id), message.receipt, dead, stored, channel)
    decode = partial(_decode_flag, queue)
    call = Call(_BURY, redis_keys, args, decode, repeatable=True)
    return recorded(journal, queue, call)


def _receipt(receipt: str | None) -> str:
    if receipt is None:
        return ""
    # The script takes an empty receipt for none.
    if not isinstance(receipt, str) or not receipt:
        raise InvalidValue("receipt", receipt, "the receipt of a received message")
    return receipt


def _chunked_calls(
    script: Script, keys: Keys, queue: str, head: tuple[Arg, ...], messages: Iterable[MessageRef]
) -> Iterator[Call[list[bool]]]:
    pairs = [_message_ref_args(each) for each in messages]
    for first in range(0, len(pairs), CHUNK):
        flat = [item for pair in pairs[first : first + CHUNK] for item in pair]
        decode = partial(_decode_flags, queue)
        yield Call(script, keys.all_of(queue), (*head, *flat), decode, repeatable=True)


def _message_ref_args(message: MessageRef) -> tuple[Arg, Arg]:
    if isinstance(message, Message):
        return id_arg(message.id), message.receipt
    if isinstance(message, tuple):
        return _message_args(*message)
    return _message_args(message, None)


def _message_args(id: str, receipt: str | None) -> tuple[str | bytes, str]:
    """Return the id and receipt as arguments; with a receipt, the id may have any form."""
    checked = _receipt(receipt)
    is_received = checked and isinstance(id, str)
    return id_arg(id if is_received else check_id(id)), checked


def _collect_flags(calls: Iterable[Call[list[bool]]]) -> Plan[list[bool]]:
    batch = list(calls)
    outcomes = (yield batch) if batch else []
    return [flag for flags in results(outcomes) for flag in flags]


def _decode_flags(queue: str, reply: Any) -> list[bool]:
    return [bool(flag) for flag in require_queue(queue, reply)]


def _decode_first_flag(queue: str, reply: Any) -> bool:
    return _decode_flags(queue, reply)[0]


def _decode_flag(queue: str, reply: Any) -> bool:
    return bool(require_queue(queue, reply))
