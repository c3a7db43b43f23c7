"""The blocking RSMQ client. Its twin in `async_client` differs by `await` alone; keep it so.

An operation whose reply was lost is repeated if that is safe, else it raises
`ReplyLost`. See `tambomq.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds
from tambomq.rsmq import longpoll
from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.rsmq.model import (
    DEFAULT_DELAY,
    DEFAULT_MAXSIZE,
    DEFAULT_VT,
    Body,
    Message,
    QueueAttributes,
    QueueBounds,
    QueueStats,
    check_seconds,
)
from tambomq.rsmq.ops import bounds as bounds_ops
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.rsmq.ops.journal import journal_policy
from tambomq.store.durability.level import MEMORY, TIMEOUT_S
from tambomq.store.durability.sync import stores
from tambomq.store.endpoint import PATIENCE_S, URL, Credentials, Tls, endpoint
from tambomq.store.sync import Store


class Rsmq:
    """A blocking RSMQ client, for any number of threads.

    *ns* is the namespace of all keys; on a cluster put it in braces, such as
    ``{rsmq}``. With *realtime* each send publishes a notification, so that waiting
    receivers wake at once. *credentials* is called for each new connection.
    An unreachable server is retried for *patience_s* seconds.
    *journal*: operations of this client on queues of these names or patterns, such as
    ``audit-*``, are recorded in their journals, within *journal_bounds*.
    *durable* is what a send that returns without an error means, unless it says otherwise: the
    message is in the server's ``"memory"``, on its ``"disk"``, or on ``"replicas:N"``; `NotDurable`
    if that is not confirmed within *durable_timeout_s*.
    """

    def __init__(  # noqa: PLR0913  (options, all by keyword)
        self,
        url: str | Store = URL,
        *,
        ns: str = NAMESPACE,
        realtime: bool = False,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        patience_s: float = PATIENCE_S,
        journal: Iterable[str] = (),
        journal_bounds: JournalBounds = DEFAULT_BOUNDS,
        durable: str = MEMORY,
        durable_timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Store the options; the first operation connects."""
        self._keys, self._journal = Keys(ns), journal_policy(ns, journal, journal_bounds)
        self._realtime = realtime
        if not isinstance(url, Store):
            server = endpoint(url, tls=tls, credentials=credentials).within(patience_s)
            url = Store(server, patience_s=patience_s)
        self._store = url
        self._senders = stores(url, durable, durable_timeout_s)
        self._sender = self._senders.default

    # ── queues ───────────────────────────────────────────────────────────────

    def create_queue(
        self,
        queue: str,
        *,
        vt: int = DEFAULT_VT,
        delay: int = DEFAULT_DELAY,
        maxsize: int = DEFAULT_MAXSIZE,
    ) -> None:
        """Create a queue.

        *vt*: seconds a received message stays hidden. *delay*: seconds before a
        sent message becomes visible. *maxsize*: bytes, or -1 for no limit.
        Raises `QueueExists`.
        """
        self._store.run(queue_ops.create(self._keys, queue, vt=vt, delay=delay, maxsize=maxsize))

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and all its messages. Raises `QueueNotFound`."""
        self._store.run(queue_ops.drop(self._keys, queue))

    def list_queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._store.run(queue_ops.list_queues(self._keys))

    def get_queue_attributes(self, queue: str) -> QueueAttributes:
        """Return a queue's settings, counters and sizes. Raises `QueueNotFound`."""
        return self._store.run(queue_ops.attributes(self._keys, queue))

    def set_queue_attributes(
        self,
        queue: str,
        *,
        vt: int | None = None,
        delay: int | None = None,
        maxsize: int | None = None,
    ) -> QueueAttributes:
        """Change the given settings and return all. Raises `QueueNotFound`, `NothingToSet`."""
        return self._store.follow(
            queue_ops.set_attributes(self._keys, queue, vt=vt, delay=delay, maxsize=maxsize)
        )

    def set_queue_bounds(
        self,
        queue: str,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        message_ttl_s: float | None = None,
        overflow: str | None = None,
        dead: str | None = None,
    ) -> QueueBounds:
        """Change the given bounds of a queue and return all; -1 removes one.

        A send to a queue with *max_messages* messages, or *max_bytes* in their bodies, raises
        `QueueFull` or, with *overflow* ``"dead-letter"``, goes to the queue *dead*. So does a
        message that is visible for *message_ttl_s* without being received. Sends by other
        libraries are not checked. Raises `QueueNotFound`, `NothingToSet`.
        """
        return self._store.follow(
            bounds_ops.set_bounds(
                self._keys,
                queue,
                max_messages=max_messages,
                max_bytes=max_bytes,
                message_ttl_s=message_ttl_s,
                overflow=overflow,
                dead=dead,
            )
        )

    def sweep_expired(self, queue: str) -> int:
        """Dead-letter all messages that have expired; return how many. Raises `QueueNotFound`."""
        return self._store.follow(bounds_ops.sweep(self._keys, queue, journal=self._journal))

    def get_queue_stats(self, queue: str) -> QueueStats:
        """Count a queue message by message, damage included. Raises `QueueNotFound`.

        Reads every message, one page per call: about a second for 100,000.
        """
        return self._store.follow(queue_ops.stats(self._keys, queue))

    def purge_queue(self, queue: str) -> int:
        """Delete all messages, keep the queue; return how many there were."""
        return self._store.run(queue_ops.purge(self._keys, queue))

    # ── messages ─────────────────────────────────────────────────────────────

    def send_message(
        self, queue: str, body: Body, *, delay: float | None = None, durable: str | None = None
    ) -> str:
        """Put *body* on a queue and return the message's id.

        *delay* in seconds overrides the queue's own, *durable* the client's. Raises
        `QueueNotFound`, `MessageTooLong`, `QueueFull`, `JournalFull`, `NotDurable`.
        """
        sender = self._sender if durable is None else self._senders.at(durable)
        return sender.run(
            message_ops.send(
                self._keys, queue, body, delay=delay, realtime=self._realtime, journal=self._journal
            )
        )

    def send_messages(
        self,
        queue: str,
        bodies: Iterable[Body],
        *,
        delay: float | None = None,
        durable: str | None = None,
    ) -> list[str]:
        """Put *bodies* on a queue in one round trip and return the ids, in order.

        They are received in the order given. One that is too long fails the whole
        batch. Messages are stored in chunks of 500, each of them as a whole or not at
        all; `BatchIncomplete` lists the missing ones if some chunks failed. With *durable*
        above memory the batch waits once.
        """
        sender = self._sender if durable is None else self._senders.at(durable)
        return sender.follow(
            message_ops.send_batch(
                self._keys,
                queue,
                bodies,
                delay=delay,
                realtime=self._realtime,
                journal=self._journal,
            )
        )

    def receive_message(
        self, queue: str, *, vt: float | None = None, wait: float = 0.0
    ) -> Message | None:
        """Return the oldest visible message and hide it from other consumers; `None` without one.

        *vt* in seconds overrides the queue's own. *wait*: how many seconds to
        wait for a message if there is none. Raises `QueueNotFound`.
        """
        if check_seconds("wait", wait) == 0:
            result = self._store.run(
                message_ops.receive_one(self._keys, queue, vt=vt, journal=self._journal)
            )
            if not result.needs_retry:
                return result.first
        received = self.receive_messages(queue, 1, vt=vt, wait=wait)
        return received[0] if received else None

    def receive_messages(
        self, queue: str, count: int, *, vt: float | None = None, wait: float = 0.0
    ) -> list[Message]:
        """Return up to *count* of the oldest visible messages, in one round trip.

        Like `receive_message`; with *wait* it returns as soon as there is at least one.
        """
        return longpoll.receive(
            self._store, self._keys, queue, count, vt=vt, wait=wait, journal=self._journal
        )

    def pop_message(self, queue: str) -> Message | None:
        """Return and delete the oldest visible message; `None` without one."""
        return self._store.follow(message_ops.pop(self._keys, queue, journal=self._journal))

    def peek_messages(self, queue: str, count: int = 10, *, first: int = 0) -> list[Message]:
        """Return messages, hidden ones too, in the order they become visible.

        Does not receive them, and changes no counter. *first* is the rank to begin at.
        """
        return self._store.run(message_ops.peek(self._keys, queue, count, first=first))

    def delete_message(self, queue: str, id: str, *, receipt: str | None = None) -> bool:
        """Delete a message; false if there is no such message.

        With *receipt* (of the received message) nothing is deleted, and the result is
        false, once another consumer has received it.
        """
        return self._store.run(
            settle_ops.delete(self._keys, queue, id, receipt=receipt, journal=self._journal)
        )

    def delete_messages(self, queue: str, messages: Iterable[str | Message]) -> list[bool]:
        """Delete messages in one round trip; for each, whether it was deleted.

        A `Message` is deleted by its receipt, an id unconditionally.
        """
        return self._store.follow(
            settle_ops.delete_batch(self._keys, queue, messages, journal=self._journal)
        )

    def change_message_visibility(
        self, queue: str, id: str, vt: float, *, receipt: str | None = None
    ) -> bool:
        """Make a message visible in *vt* seconds; false if there is no such message.

        With *receipt* also false once another consumer has received it.
        """
        return self._store.run(settle_ops.hide(self._keys, queue, id, vt, receipt=receipt))

    # ── close ────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Close the connections; a later operation reconnects."""
        self._store.close()
        for store in self._senders.durable:
            store.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()
