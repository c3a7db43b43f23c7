"""KqueueMsgQ messages: it stores none, so a list has what the queue's journal recorded."""

from __future__ import annotations

from typing import Final

from tambomq.console.messages.lists.journal import JournalSource
from tambomq.console.messages.lists.source import EmptySource, MessageSource
from tambomq.console.messages.model import MessageState
from tambomq.console.model import QueueRef
from tambomq.journal.keys import SENT, JournalKeys
from tambomq.store.aio import AsyncStore

STORES_NOTHING: Final = (
    "KqueueMsgQ stores no messages: each goes to the consumers that are subscribed, at once."
)


def source(store: AsyncStore, ref: QueueRef, state: MessageState) -> MessageSource:
    """Return the messages of a queue in *state*: all of them are done."""
    if state != "done":
        return EmptySource(STORES_NOTHING)
    note = f"{STORES_NOTHING} What passes is recorded if `tambo serve --journal` names the queue."
    return JournalSource(store, JournalKeys("kqueue", ref.name), ref, ends=(SENT,), note=note)
