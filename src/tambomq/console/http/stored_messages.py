"""The messages of one Redis, as the API reads them."""

from __future__ import annotations

from tambomq.console.messages.details import read_message
from tambomq.console.messages.model import MessageDetail, MessagePage, MessageState
from tambomq.console.messages.pages import list_messages
from tambomq.console.model import QueueRef
from tambomq.store.aio import AsyncStore


class StoredMessages:
    """Reads single messages of *store*."""

    def __init__(self, store: AsyncStore, rsmq_ns: str) -> None:
        self._store, self._rsmq_ns = store, rsmq_ns

    async def list_messages(
        self,
        ref: QueueRef,
        state: MessageState,
        *,
        cursor: str | None = None,
        limit: int = 50,
        find: str = "",
        name: str = "",
    ) -> MessagePage:
        """Return some messages of a queue. Raises `QueueNotFound`."""
        return await list_messages(
            self._store,
            ref,
            state,
            cursor=cursor,
            limit=limit,
            find=find,
            name=name,
            rsmq_ns=self._rsmq_ns,
        )

    async def read_message(self, ref: QueueRef, id: str) -> MessageDetail:
        """Return one message. Raises `MessageNotFound`."""
        return await read_message(self._store, ref, id, rsmq_ns=self._rsmq_ns)
