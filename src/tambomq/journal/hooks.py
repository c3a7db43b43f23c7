"""Calls of scripts with journal hooks.

A script that stores, delivers or removes messages calls journal hooks. For a queue with a journal
it is loaded with them and gets more keys and arguments, so the operation and its journal entry are
one atomic step. For other queues it is loaded without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tambomq.errors import JournalFull
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.call import Arg, Call, Script, journalled

T = TypeVar("T")

_FULL: Final = b"JOURNAL_FULL"
"""The reply of a script that stores nothing because a journal is full."""


def recorded(
    journal: JournalPolicy | None,
    queue: str,
    call: Call[T],
    *,
    entries: int = 0,
    size: int = 0,
    extra: Sequence[Arg] = (),
) -> Call[T]:
    """Return *call* with journal hooks, if *queue* has a journal; else *call*.

    It stores *entries* with *size* bytes in all, or raises `JournalFull` and stores nothing. Events
    that only report, such as a receive, are left out of a full journal and counted. *extra*:
    arguments that the protocol's own hooks take.
    """
    if journal is None or (keys := journal.of(queue)) is None:
        return call
    assert isinstance(call.verb, Script)  # noqa: S101  (commands have no hooks)
    bounds = journal.bounds
    return Call(
        journalled(call.verb),
        (*call.keys, keys.journal, keys.state),
        (*call.args, *extra, bounds.max_entries, bounds.max_bytes, entries, size),
        partial(unless_full, (keys.queue,), bounds, call.decode),
        call.repeatable,
    )


def unless_full(
    queues: Sequence[str], bounds: JournalBounds, decode: Callable[[Any], T], reply: Any
) -> T:
    """Return the decoded *reply*; raise `JournalFull` if that is what it says.

    *queues*: those the script works on, in their order.
    """
    if isinstance(reply, list) and reply[:1] == [_FULL]:
        place = reply[1] if len(reply) > 1 else 1
        raise JournalFull(queues[place - 1], bounds.max_entries, bounds.max_bytes)
    return decode(reply)


def require_one_node(keys: JournalKeys, key: str) -> Call[int]:
    """Raise `StoreError` on a cluster: no script can write to *key* and to the journal there."""
    return Call("EXISTS", (key, keys.journal, keys.state), (), int, repeatable=True)
