"""What becomes of the calls of one round trip. No socket: bytes out, replies in.

A trip ends when each call has an outcome. Some need more than one round: a
script the server has forgotten is sent with its source, a call that belongs to
another node of a cluster is sent there, a server that is still loading is asked
again. When a connection breaks, only calls that are safe to repeat are.

Calls of one trip to one node are done in their order. That is why, where several
go together, the first use of each script carries its source: else one that the
server has forgotten would be overtaken by those behind it.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, TypeAlias

import hiredis

from tambomq.errors import ReplyLost, StoreError, StoreReadOnly, StoreUnavailable, TamboError
from tambomq.store.call import Call, Outcome, Script
from tambomq.store.server_errors import translate

Address: TypeAlias = tuple[str, int]

_SLOTS = 16384

_ASKING = hiredis.pack_command(("ASKING",))

# A call finds its node in two redirections, three while a slot is on the move.
# More mean that the nodes disagree: then it is time to pause between rounds.
_REDIRECTIONS = 4
_BROKEN = "the connection broke before the reply came"


class Trip:
    """Calls on their way. `waiting` holds the places of those without an outcome."""

    __slots__ = (
        "_ask",
        "_calls",
        "_lost",
        "_reason",
        "_redirected",
        "_source",
        "moved",
        "outcomes",
        "pause",
        "waiting",
    )

    def __init__(self, calls: Sequence[Call[Any]], *, with_source: bool = False) -> None:
        """Send scripts by their names, or all *with_source* from the beginning."""
        self._calls = calls
        self.outcomes: list[Outcome] = [None] * len(calls)
        self.waiting: Sequence[int] = range(len(calls))
        self.pause = False
        """Whether to wait a little before the next round."""
        self.moved: dict[int, Address] = {}
        """Cluster slots and the nodes that a server said they are on."""
        self._source = set(range(len(calls))) if with_source else set[int]()
        self._ask: dict[int, Address] = {}
        self._lost: set[int] = set()
        self._redirected = 0
        self._reason: StoreUnavailable | None = None

    @property
    def refused_writes(self) -> bool:
        """Whether the last who gave a reason to pause takes no writes."""
        return isinstance(self._reason, StoreReadOnly)

    def by_node(self, home: dict[int, Address]) -> dict[Address | None, list[int]]:
        """Sort what is waiting by the node it goes to; `None`: any node will do."""
        if not home and not self._ask:
            return {None: list(self.waiting)}
        nodes: dict[Address | None, list[int]] = {}
        # Several nodes may have sent calls on to the same one.
        for place in sorted(self.waiting):
            keys = self._calls[place].keys
            node = self._ask.get(place) or (home.get(slot_of(keys[0])) if keys else None)
            nodes.setdefault(node, []).append(place)
        return nodes

    def pack(self, places: Sequence[int]) -> tuple[bytes, int]:
        """Return the bytes of the calls at *places*, and how many replies they will get."""
        first_uses = self._first_uses(places) if len(places) > 1 else ()
        commands = []
        for place in places:
            call = self._calls[place]
            if place in self._ask:
                commands.append(_ASKING)
            with_source = place in self._source or place in first_uses
            parts = call.parts_with_source if with_source else call.parts
            commands.append(call.packed or hiredis.pack_command(parts))
        return (commands[0] if len(commands) == 1 else b"".join(commands)), len(commands)

    def arrive(self, places: Sequence[int], replies: Sequence[Any], host: str = "") -> list[int]:
        """Take the replies to `pack(places)`; return the places that need another round.

        Fewer replies than were due mean that the connection broke. *host* is
        where they come from: a node that redirects may leave its own host out.
        """
        if self._ask:
            replies = self._without_asking(places, replies)
        again = []
        for place, reply in zip(places, replies, strict=False):
            if isinstance(reply, hiredis.ReplyError):
                if not self._failed(place, reply, host):
                    again.append(place)
            else:
                self.outcomes[place] = decoded(self._calls[place], reply)
        return again + self._broken(places[len(replies) :])

    def unreachable(self, places: Sequence[int], reason: StoreUnavailable) -> list[int]:
        """Note that nothing could be sent; all *places* need another round."""
        self._reason, self.pause = reason, True
        for place in places:
            # A node that a slot was moving to may be gone; its old home knows more.
            self._ask.pop(place, None)
        return list(places)

    def refused(self, places: Sequence[int], reason: StoreError) -> list[int]:
        """Note that the server does not let us in: the end of the calls at *places*."""
        for place in places:
            self.outcomes[place] = reason
        return []

    def give_up(self) -> None:
        """Let what is still waiting fail."""
        reason = self._reason or StoreUnavailable("the server is not ready")
        for place in self.waiting:
            # "Nothing was done" would be a lie about one that was once sent in vain.
            self.outcomes[place] = (
                ReplyLost(f"{_BROKEN}; since then: {reason}") if place in self._lost else reason
            )
        self.waiting = ()

    def _first_uses(self, places: Sequence[int]) -> set[int]:
        first: dict[str, int] = {}
        for place in places:
            verb = self._calls[place].verb
            if isinstance(verb, Script):
                first.setdefault(verb.sha, place)
        return set(first.values())

    def _failed(self, place: int, error: hiredis.ReplyError, host: str) -> bool:
        """Whether *error* is the end of this call."""
        kind, _, detail = str(error).partition(" ")
        if kind == "NOSCRIPT":
            self._source.add(place)
        elif kind in ("MOVED", "ASK"):
            slot, _, address = detail.partition(" ")
            name, _, port = address.rpartition(":")
            home = self.moved if kind == "MOVED" else self._ask
            home[int(slot) if kind == "MOVED" else place] = (name or host, int(port))
            self._redirected += 1
            if self._redirected > _REDIRECTIONS * len(self._calls):
                self._reason, self.pause = StoreUnavailable(f"nodes disagree: {error}"), True
        else:
            meaning = translate(error, self._calls[place].keys)
            if not isinstance(meaning, StoreUnavailable):
                self.outcomes[place] = meaning
                return True
            self._reason, self.pause = meaning, True
        return False

    def _broken(self, places: Sequence[int]) -> list[int]:
        again = []
        for place in places:
            if self._calls[place].repeatable:
                self._reason, self.pause = ReplyLost(_BROKEN), True
                self._lost.add(place)
                again.append(place)
            else:
                self.outcomes[place] = ReplyLost(_BROKEN)
        return again

    def _without_asking(self, places: Sequence[int], replies: Sequence[Any]) -> list[Any]:
        rest, kept = list(replies), []
        for place in places:
            if self._ask.pop(place, None) and rest:
                rest.pop(0)
            if rest:
                kept.append(rest.pop(0))
        return kept


def decoded(call: Call[Any], reply: Any) -> Outcome:
    """Return what *reply* means to *call*, an error as a value."""
    try:
        return call.decode(reply)
    except TamboError as error:
        return error


def slot_of(key: str) -> int:
    """Return the cluster slot of *key*: of what is between its first braces, if anything."""
    _, brace, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if brace and closed and tag else key).encode(), 0) % _SLOTS
