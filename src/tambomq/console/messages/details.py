"""`read_message`: the page of one message."""

from __future__ import annotations

import msgspec

from tambomq.console.messages.commands import on_server
from tambomq.console.messages.model import MessageDetail
from tambomq.console.messages.pages import NOW
from tambomq.console.messages.reads.chasqui import read_job
from tambomq.console.messages.reads.gomq import read_element
from tambomq.console.messages.reads.kqueue import read_entry
from tambomq.console.messages.reads.rsmq import read_record
from tambomq.console.messages.views.chasqui import job_detail
from tambomq.console.messages.views.gomq import element_detail
from tambomq.console.messages.views.kqueue import entry_detail
from tambomq.console.messages.views.rsmq import message_detail
from tambomq.console.model import QueueRef
from tambomq.errors import MessageNotFound
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.aio import AsyncStore

_ID_CHARS = 1024


async def read_message(
    store: AsyncStore, ref: QueueRef, id: str, *, rsmq_ns: str = NAMESPACE
) -> MessageDetail:
    """Return a message, why it is not running, and what happened to it.

    Raises `MessageNotFound`, and `InvalidFormat` for a name that cannot be a queue's.
    """
    found = await _read(store, ref, id, rsmq_ns)
    return msgspec.structs.replace(found, commands=on_server(found.commands, store.endpoint))


async def _read(store: AsyncStore, ref: QueueRef, id: str, rsmq_ns: str) -> MessageDetail:
    if not id.strip() or len(id) > _ID_CHARS or not _is_text(id):
        raise MessageNotFound(ref.name, id[:40], "no message can have this id")
    match ref.protocol:
        case "chasqui":
            return job_detail(await read_job(store, ref, id))
        case "rsmq":
            return message_detail(await read_record(store, ref, id, rsmq_ns))
        case "gomq":
            return element_detail(await read_element(store, ref, id))
        case "kqueue":
            entry = await read_entry(store, ref, id)
            return entry_detail(ref, entry, await store.run(NOW))


def _is_text(id: str) -> bool:
    try:
        id.encode()
    except UnicodeEncodeError:
        return False
    return True
