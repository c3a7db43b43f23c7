"""The subscriptions of a client's consumer, kept so that a new connection can restore them."""

from __future__ import annotations

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.kqueue.connection import Role
from tambomq.kqueue.frames import (
    LIMITS,
    Limits,
    Text,
    encode_name,
    encode_subscribe,
    encode_unsubscribe,
)


class SubscriptionSet:
    """The subscriptions of one consumer; each change returns the frames to send."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._names: dict[bytes, None] = {}
        self._all = False

    def handshake(self) -> bytes:
        """Return the first bytes of a connection: the role, and all subscriptions."""
        names = [b""] * self._all + list(self._names)
        return Role.CONSUMER.value + b"".join(
            encode_subscribe(name, self._limits) for name in names
        )

    def subscribe(self, *queues: Text) -> bytes:
        """Add *queues*."""
        names = self._checked(queues, "subscribe_all")
        self._names.update(dict.fromkeys(names))
        return b"".join(encode_subscribe(name, self._limits) for name in names)

    def subscribe_all(self) -> bytes:
        """Add all queues."""
        self._all = True
        return encode_subscribe(b"")

    def unsubscribe(self, *queues: Text) -> bytes:
        """Remove *queues*."""
        names = self._checked(queues, "unsubscribe_all")
        for name in names:
            self._names.pop(name, None)
        return b"".join(encode_unsubscribe(name, self._limits) for name in names)

    def unsubscribe_all(self) -> bytes:
        """Remove all subscriptions."""
        self._all = False
        self._names.clear()
        return encode_unsubscribe(b"")

    def _checked(self, queues: tuple[Text, ...], instead: str) -> list[bytes]:
        if not queues:
            raise InvalidValue("the number of queues", 0, f"1 or more; for all use {instead}()")
        names = [encode_name(queue, self._limits) for queue in queues]
        if b"" in names:
            raise InvalidFormat("queue name", "", f"it is empty; for all queues use {instead}()")
        return names
