"""The blocking KqueueMsgQ clients. Their twins in `async_client` differ by `await` only.

The protocol has no acknowledgements: messages sent before a connection broke may be lost. The
call that notices it raises `BrokerUnavailable`, the next one reconnects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from threading import Lock
from types import TracebackType
from typing import Self

from tambomq.clock import Deadline
from tambomq.errors import TamboError
from tambomq.kqueue.connection import Role
from tambomq.kqueue.decoder import MessageDecoder
from tambomq.kqueue.frames import LIMITS, Limits, Message, Text, encode_message, pack_messages
from tambomq.kqueue.link import Link
from tambomq.kqueue.subscriptions import SubscriptionSet
from tambomq.store.endpoint import Tls, check_patience


class Producer:
    """Sends messages; for any number of threads.

    *timeout_s* limits connecting, and how long a send may make no progress. An unreachable
    server is retried for *patience_s*; by default not at all.
    *limits* are the server's: a message that exceeds them is refused before it is sent.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: Tls | None = None,
        timeout_s: float = 5.0,
        patience_s: float = 0.0,
        limits: Limits = LIMITS,
    ) -> None:
        """Store the options; the first message connects."""
        self._server, self._patience_s = (host, port, tls, timeout_s), check_patience(patience_s)
        self._limits, self._lock = limits, Lock()
        self._link: Link | None = None

    def send(self, queue: Text, body: Text) -> None:
        """Send a message to the subscribers of *queue*.

        Raises `BrokerUnavailable`, `MessageTooLong`, `LocalProtocolError`.
        """
        self._transmit(encode_message(queue, body, self._limits))

    def send_many(self, messages: Iterable[tuple[Text, Text]]) -> int:
        """Send pairs of a queue and a body, many per write; return how many were sent.

        *messages* is consumed lazily, so there may be more than fit into memory. An invalid
        message raises; those before it have been sent. Raises as `send`.
        """
        sent = 0
        for frames, count in pack_messages(messages, self._limits):
            self._transmit(frames)
            sent += count
        return sent

    def close(self) -> None:
        """Close once the server has read everything; a later message reconnects.

        Waits at most *timeout_s*.
        """
        with self._lock:
            link, self._link = self._link, None
            if link is not None:
                link.drain_and_close()

    def __enter__(self) -> Self:
        """Return the producer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def _transmit(self, frames: bytes) -> None:
        with self._lock:
            try:
                link = self._link
                if link is None:
                    link = self._link = Link.connect_with_retry(self._patience_s, *self._server)
                    link.send(Role.PRODUCER.value)
                link.discard()
                link.send(frames)
            except BaseException:
                # Part of a frame may have been sent: the server could not parse what follows.
                if self._link is not None:
                    self._link.close()
                    self._link = None
                raise


class Consumer:
    """Receives the messages of the queues it is subscribed to; for one thread at a time.

    Subscriptions are restored on a new connection.
    *timeout_s* limits connecting, and how long a send may make no progress. An unreachable
    server is retried for *patience_s*; by default not at all.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: Tls | None = None,
        timeout_s: float = 5.0,
        patience_s: float = 0.0,
        limits: Limits = LIMITS,
    ) -> None:
        """Store the options; the first operation connects."""
        self._server, self._patience_s = (host, port, tls, timeout_s), check_patience(patience_s)
        self._limits, self._subscriptions = limits, SubscriptionSet(limits)
        self._link: Link | None = None
        self._decoder = MessageDecoder(limits)
        self._ready: deque[Message] = deque()

    def subscribe(self, *queues: Text) -> None:
        """Receive messages of *queues* from now on. Raises `BrokerUnavailable`."""
        self._send_request(self._subscriptions.subscribe(*queues))

    def subscribe_all(self) -> None:
        """Receive messages of all queues, including those without a name."""
        self._send_request(self._subscriptions.subscribe_all())

    def unsubscribe(self, *queues: Text) -> None:
        """Stop receiving from *queues*; has no effect while subscribed to all queues."""
        self._send_request(self._subscriptions.unsubscribe(*queues))

    def unsubscribe_all(self) -> None:
        """End all subscriptions; messages already in flight are still received."""
        self._send_request(self._subscriptions.unsubscribe_all())

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message; `None` if none arrives within *timeout_s*, if one is given.

        Raises `BrokerUnavailable`, and `RemoteProtocolError` for bytes that are no frame.
        """
        if self._ready:
            return self._ready.popleft()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            link = self._ensure_connected()
            self._ready.extend(self._decoder.feed(b""))
            while not self._ready:
                data = link.receive(None if deadline is None else deadline.left_s)
                if data is None:
                    return None
                self._ready.extend(self._decoder.feed(data))
        except TamboError:
            self.close()
            raise
        return self._ready.popleft()

    def close(self) -> None:
        """Close the connection; a later operation reconnects."""
        link, self._link = self._link, None
        self._decoder = MessageDecoder(self._limits)
        if link is not None:
            link.close()

    def __iter__(self) -> Iterator[Message]:
        """Yield messages without end."""
        while (message := self.receive()) is not None:
            yield message

    def __enter__(self) -> Self:
        """Return the consumer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def _send_request(self, frames: bytes) -> None:
        try:
            if self._link is None:
                self._ensure_connected()
            else:
                self._link.send(frames)
        except BaseException:
            # Part of a frame may have been sent: the server could not parse what follows.
            self.close()
            raise

    def _ensure_connected(self) -> Link:
        if self._link is None:
            self._link = Link.connect_with_retry(self._patience_s, *self._server)
            self._link.send(self._subscriptions.handshake())
        return self._link
