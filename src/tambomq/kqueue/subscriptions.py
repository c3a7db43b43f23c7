"""What a consumer of ours wants, remembered so that it can be asked for again."""

from __future__ import annotations

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.kqueue.connection import Role
from tambomq.kqueue.frames import (
    LIMITS,
    Limits,
    Text,
    encode_subscribe,
    encode_unsubscribe,
    name_of,
)


class Wishes:
    """The subscriptions of one consumer; each change is returned as what to tell the server."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._names: dict[bytes, None] = {}
        self._all = False

    def opening(self) -> bytes:
        """Return what to say first on a connection."""
        names = [b""] * self._all + list(self._names)
        return Role.CONSUMER.value + b"".join(
            encode_subscribe(name, self._limits) for name in names
        )

    def subscribe(self, *queues: Text) -> bytes:
        """Want the messages of *queues* too."""
        names = self._checked(queues, "subscribe_all")
        self._names.update(dict.fromkeys(names))
        return self._asked_for(names)

    def subscribe_all(self) -> bytes:
        """Want the messages of all queues."""
        self._all = True
        return encode_subscribe(b"")

    def unsubscribe(self, *queues: Text) -> bytes:
        """Want the messages of *queues* no more."""
        names = self._checked(queues, "unsubscribe_all")
        for name in names:
            self._names.pop(name, None)
        return b"".join(encode_unsubscribe(name, self._limits) for name in names)

    def unsubscribe_all(self) -> bytes:
        """Want nothing."""
        self._all = False
        self._names.clear()
        return encode_unsubscribe(b"")

    def _asked_for(self, names: list[bytes]) -> bytes:
        return b"".join(encode_subscribe(name, self._limits) for name in names)

    def _checked(self, queues: tuple[Text, ...], instead: str) -> list[bytes]:
        if not queues:
            raise InvalidValue("the number of queues", 0, f"1 or more; for all use {instead}()")
        names = [name_of(queue, self._limits) for queue in queues]
        if b"" in names:
            raise InvalidFormat("queue name", "", f"it is empty; for all queues use {instead}()")
        return names
