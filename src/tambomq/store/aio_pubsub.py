"""Pub/sub for asyncio: the subscriptions of any number of tasks over one connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import hiredis

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.aio_connection import AioConnection
from tambomq.store.roundtrip import Address
from tambomq.store.server_errors import translate


class Subscription:
    """One task's subscription to one channel. Counts no messages: it only wakes the task."""

    def __init__(self, channel: bytes) -> None:
        """Use `PubSub.subscription` instead."""
        self.channel = channel
        self.is_usable = True
        """Whether the connection is still open."""
        self._news = asyncio.Event()

    def notify(self, *, is_usable: bool = True) -> None:
        """Wake `wait`: something was published, or may have been."""
        self.is_usable = is_usable
        self._news.set()

    async def wait(self, within_s: float) -> bool:
        """Wait up to *within_s* seconds; return whether something may have been published."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class PubSub:
    """One connection in subscribed state, opened when first needed."""

    def __init__(self, open_connection: Callable[..., Awaitable[AioConnection]]) -> None:
        """Use *open_connection* to connect."""
        self._open_connection = open_connection
        self._connection: AioConnection | None = None
        self._connections_opened = 0
        self._lock = asyncio.Lock()
        self._subscriptions: dict[bytes, set[Subscription]] = {}
        self._confirmations: dict[bytes, asyncio.Future[None]] = {}
        self._unconfirmed: deque[bytes] = deque()
        """The channels of SUBSCRIBE commands without a reply, in the order they were sent."""

    def subscription(self, channel: str) -> Subscription:
        """Return a subscription to *channel* that is not active before `subscribe`."""
        subscription = Subscription(channel.encode())
        self._subscriptions.setdefault(subscription.channel, set()).add(subscription)
        return subscription

    async def subscribe(self, subscription: Subscription) -> None:
        """Subscribe; everything published after this returns is received.

        Raises `StoreUnavailable`, or `StoreRefused` if an ACL forbids the channel.
        """
        name = subscription.channel
        async with self._lock:
            if self._connection is None or not self._connection.is_usable:
                await self._connect()
            connection = self._connection
            confirmation = self._confirmations.get(name) or self._send_subscribe(name)
        try:
            async with asyncio.timeout(connection.reply_timeout_s if connection else None):
                # Shielded: other tasks wait for the same confirmation.
                await asyncio.shield(confirmation)
        except TimeoutError as error:
            # The connection itself owes no reply, so that only we notice that it is dead.
            if connection is not None:
                connection.abort()
            raise StoreUnavailable("the server does not confirm a subscription") from error
        subscription.is_usable = True

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove the subscription; send UNSUBSCRIBE if it was the last on its channel."""
        others = self._subscriptions[subscription.channel]
        others.discard(subscription)
        if not others:
            del self._subscriptions[subscription.channel]
            confirmation = self._confirmations.pop(subscription.channel, None)
            if (
                confirmation is not None
                and self._connection is not None
                and self._connection.is_usable
            ):
                self._connection.send(hiredis.pack_command((b"UNSUBSCRIBE", subscription.channel)))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that works, as far as is known."""
        return self._connection is not None and self._connection.is_usable

    def leave_former(self, primary: Address) -> None:
        """Abort a connection to another server than the *primary*."""
        if self._connection is not None and self._connection.node != primary:
            self._connection.abort()

    async def _connect(self) -> None:
        self._connections_opened += 1
        self._confirmations.clear()
        self._unconfirmed.clear()
        self._connection = await self._open_connection(
            None, on_push=partial(self._on_push, self._connections_opened)
        )

    def _send_subscribe(self, name: bytes) -> asyncio.Future[None]:
        confirmation = self._confirmations[name] = asyncio.get_running_loop().create_future()
        # Consume the exception: all tasks that waited may have been cancelled.
        confirmation.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._unconfirmed.append(name)
        if self._connection is not None:
            self._connection.send(hiredis.pack_command((b"SUBSCRIBE", name)))
        return confirmation

    def _on_push(self, connection: int, push: Any) -> None:
        if connection != self._connections_opened:
            return
        if push is None:
            self._connection_lost()
        elif isinstance(push, hiredis.ReplyError):
            self._on_confirmation(translate(push))
        elif push[0] == b"subscribe":
            self._on_confirmation(None)
        elif push[0] == b"message":
            for subscription in self._subscriptions.get(push[1], ()):
                subscription.notify()

    def _on_confirmation(self, refusal: StoreError | None) -> None:
        """Complete the oldest SUBSCRIBE: replies come in order."""
        name = self._unconfirmed.popleft()
        # If the channel was unsubscribed and subscribed again, only the last reply counts.
        if name not in self._confirmations or name in self._unconfirmed:
            return
        if refusal is None:
            self._confirmations[name].set_result(None)
        else:
            self._confirmations.pop(name).set_exception(refusal)

    def _connection_lost(self) -> None:
        """Fail pending subscribes, and wake all tasks: their subscriptions are not usable."""
        for confirmation in self._confirmations.values():
            if not confirmation.done():
                confirmation.set_exception(StoreUnavailable("lost the server while subscribing"))
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.notify(is_usable=False)
