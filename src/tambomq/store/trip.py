"""What becomes of the calls of one round trip. No socket: bytes out, replies in.

A trip ends when each call has an outcome. Some need more than one round: a
script the server has forgotten is sent with its source, a call that belongs to
another node of a cluster is sent there, a server that is still loading is asked
again. When a connection breaks, only calls that are safe to repeat are.

Calls of one trip are done in their order. That is why, in a trip of several,
the first use of each script carries its source: else one that the server has
forgotten would be overtaken by those behind it.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import hiredis

from tambomq.errors import (
    ReplyLost,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TamboError,
    WrongType,
)
from tambomq.store.call import Call, Outcome

Address: TypeAlias = tuple[str, int]

# The server says these before it does anything, so any call may be made again.
_NOT_NOW = ("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "UNBLOCKED")
_NOT_YOU = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
_SLOTS = 16384
_ASKING = hiredis.pack_command(("ASKING",))


class Trip:
    """Calls on their way. `waiting` holds the places of those without an outcome."""

    __slots__ = ("_ask", "_calls", "_reason", "_source", "moved", "outcomes", "pause", "waiting")

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self._calls = calls
        self.outcomes: list[Outcome] = [None] * len(calls)
        self.waiting: Sequence[int] = range(len(calls))
        self.pause = False
        """Whether to wait a little before the next round."""
        self.moved: dict[int, Address] = {}
        """Cluster slots and the nodes that a server said they are on."""
        self._source = _first_uses(calls) if len(calls) > 1 else set()
        self._ask: dict[int, Address] = {}
        self._reason: StoreUnavailable | None = None

    def by_node(self, home: dict[int, Address]) -> dict[Address | None, list[int]]:
        """Sort what is waiting by the node it goes to; `None`: any node will do."""
        if not home and not self._ask:
            return {None: list(self.waiting)}
        nodes: dict[Address | None, list[int]] = {}
        for place in self.waiting:
            keys = self._calls[place].keys
            node = self._ask.get(place) or (home.get(slot_of(keys[0])) if keys else None)
            nodes.setdefault(node, []).append(place)
        return nodes

    def pack(self, places: Iterable[int]) -> tuple[bytes, int]:
        """Return the bytes of the calls at *places*, and how many replies they will get."""
        commands, replies = [], 0
        for place in places:
            call = self._calls[place]
            if place in self._ask:
                commands.append(_ASKING)
                replies += 1
            parts = call.parts_with_source if place in self._source else call.parts
            commands.append(hiredis.pack_command(parts))
            replies += 1
        return (commands[0] if len(commands) == 1 else b"".join(commands)), replies

    def arrive(self, places: Sequence[int], replies: Sequence[Any]) -> list[int]:
        """Take the replies to `pack(places)`; return the places that need another round.

        Fewer replies than were due mean that the connection broke.
        """
        if self._ask:
            replies = self._without_asking(places, replies)
        again = []
        for place, reply in zip(places, replies, strict=False):
            if isinstance(reply, hiredis.ReplyError):
                if not self._failed(place, reply):
                    again.append(place)
            else:
                self._settle(place, reply)
        return again + self._lost(places[len(replies) :])

    def unreachable(self, places: Sequence[int], reason: StoreUnavailable) -> list[int]:
        """Note that nothing could be sent; all *places* need another round."""
        self._reason, self.pause = reason, True
        return list(places)

    def give_up(self) -> None:
        """Let what is still waiting fail."""
        reason = self._reason or StoreUnavailable("the server is not ready")
        for place in self.waiting:
            self.outcomes[place] = reason
        self.waiting = ()

    def _settle(self, place: int, reply: Any) -> None:
        try:
            self.outcomes[place] = self._calls[place].decode(reply)
        except TamboError as error:
            self.outcomes[place] = error

    def _failed(self, place: int, error: hiredis.ReplyError) -> bool:
        """Whether *error* is the end of this call."""
        kind, _, detail = str(error).partition(" ")
        if kind == "NOSCRIPT":
            self._source.add(place)
        elif kind in ("MOVED", "ASK"):
            slot, _, address = detail.partition(" ")
            host, _, port = address.rpartition(":")
            home = self.moved if kind == "MOVED" else self._ask
            home[int(slot) if kind == "MOVED" else place] = (host, int(port))
        elif kind in _NOT_NOW:
            self._reason, self.pause = StoreUnavailable(str(error)), True
        else:
            self.outcomes[place] = _translate(error, self._calls[place])
            return True
        return False

    def _lost(self, places: Sequence[int]) -> list[int]:
        again = []
        for place in places:
            self._reason = ReplyLost("the connection broke before the reply came")
            if self._calls[place].repeatable:
                self.pause = True
                again.append(place)
            else:
                self.outcomes[place] = self._reason
        return again

    def _without_asking(self, places: Sequence[int], replies: Sequence[Any]) -> list[Any]:
        rest, kept = list(replies), []
        for place in places:
            if self._ask.pop(place, None) and rest:
                rest.pop(0)
            if rest:
                kept.append(rest.pop(0))
        return kept


def _first_uses(calls: Sequence[Call[Any]]) -> set[int]:
    first: dict[str, int] = {}
    for place, call in enumerate(calls):
        if not isinstance(call.verb, str):
            first.setdefault(call.verb.sha, place)
    return set(first.values())


def slot_of(key: str) -> int:
    """Return the cluster slot of *key*: of what is between its first braces, if anything."""
    _, brace, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if brace and closed and tag else key).encode(), 0) % _SLOTS


def _translate(error: hiredis.ReplyError, call: Call[Any]) -> StoreError:
    text = str(error)
    kind = text.partition(" ")[0]
    if kind == "WRONGTYPE":
        return WrongType(call.keys)
    if kind == "OOM":
        return StoreFull("the server is out of memory (maxmemory): free some, or raise the limit")
    if kind in _NOT_YOU:
        return StoreRefused(text)
    if kind == "CROSSSLOT":
        return StoreError(
            "on a cluster the keys of one operation must share a slot: "
            "put the namespace in braces, such as {tag}"
        )
    return StoreError(text)
