"""The state of one round trip, without a socket: commands as bytes out, replies in.

A round trip ends when each call has an outcome. Some need several rounds: a script that the server
does not have is resent with its source, a call for another cluster node is redirected, a server
that is loading is asked again. After a broken connection only repeatable calls are resent.

Calls to one node are executed in order. So when several are sent together, the first use of each
script carries its source: a call that had to be resent would be overtaken by later ones.
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

# A call reaches its node after at most two redirections, three during a slot migration.
# If there are more, the nodes disagree: back off between rounds.
_REDIRECTIONS = 4
_BROKEN = "the connection broke before the reply came"


class RoundTrip:
    """The calls of one round trip. `pending` holds the indexes of those without an outcome."""

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
        "pending",
    )

    def __init__(self, calls: Sequence[Call[Any]], *, with_source: bool = False) -> None:
        """Send scripts by their SHA, or all *with_source* from the start."""
        self._calls = calls
        self.outcomes: list[Outcome] = [None] * len(calls)
        self.pending: Sequence[int] = range(len(calls))
        self.pause = False
        """Whether to back off before the next round."""
        self.moved: dict[int, Address] = {}
        """Cluster slots and their nodes, from MOVED replies."""
        self._source = set(range(len(calls))) if with_source else set[int]()
        self._ask: dict[int, Address] = {}
        self._lost: set[int] = set()
        self._redirected = 0
        self._reason: StoreUnavailable | None = None

    @property
    def refused_writes(self) -> bool:
        """Whether the last transient error was a refused write."""
        return isinstance(self._reason, StoreReadOnly)

    def by_node(self, slot_map: dict[int, Address]) -> dict[Address | None, list[int]]:
        """Group the pending calls by their node; `None` stands for any node."""
        if not slot_map and not self._ask:
            return {None: list(self.pending)}
        nodes: dict[Address | None, list[int]] = {}
        # Sorted, since several nodes may have redirected calls to the same one.
        for index in sorted(self.pending):
            keys = self._calls[index].keys
            node = self._ask.get(index) or (slot_map.get(slot_of(keys[0])) if keys else None)
            nodes.setdefault(node, []).append(index)
        return nodes

    def pack(self, indexes: Sequence[int]) -> tuple[bytes, int]:
        """Return the calls at *indexes* as bytes, and how many replies to expect."""
        first_uses = self._first_uses(indexes) if len(indexes) > 1 else ()
        commands = []
        for index in indexes:
            call = self._calls[index]
            if index in self._ask:
                commands.append(_ASKING)
            if (index in self._source or index in first_uses) and isinstance(call.verb, Script):
                commands.append(hiredis.pack_command(call.parts_with_source))
            else:
                commands.append(call.packed or hiredis.pack_command(call.parts))
        return (commands[0] if len(commands) == 1 else b"".join(commands)), len(commands)

    def on_replies(
        self, indexes: Sequence[int], replies: Sequence[Any], host: str = ""
    ) -> list[int]:
        """Process the replies to `pack(indexes)`; return the indexes that need another round.

        Fewer replies than expected mean that the connection broke. *host* is the node that
        replied: in redirections it may leave out its own host.
        """
        if self._ask:
            replies = self._without_asking(indexes, replies)
        again = []
        for index, reply in zip(indexes, replies, strict=False):
            if isinstance(reply, hiredis.ReplyError):
                if not self._is_final(index, reply, host):
                    again.append(index)
            else:
                self.outcomes[index] = decoded(self._calls[index], reply)
        return again + self._broken(indexes[len(replies) :])

    def unreachable(self, indexes: Sequence[int], reason: StoreUnavailable) -> list[int]:
        """Record that nothing could be sent; all *indexes* need another round."""
        self._reason, self.pause = reason, True
        # A node that died is named until another takes over: that is no disagreement.
        self._redirected = 0
        for index in indexes:
            # The target of a slot migration may be gone: ask the slot's owner again.
            self._ask.pop(index, None)
        return list(indexes)

    def refused(self, indexes: Sequence[int], reason: StoreError) -> list[int]:
        """Fail the calls at *indexes*: the server refused the connection."""
        for index in indexes:
            self.outcomes[index] = reason
        return []

    def give_up(self) -> None:
        """Fail the calls that are still pending."""
        reason = self._reason or StoreUnavailable("the server is not ready")
        for index in self.pending:
            # A call that was sent once may have been executed: say so.
            self.outcomes[index] = (
                ReplyLost(f"{_BROKEN}; since then: {reason}") if index in self._lost else reason
            )
        self.pending = ()

    def _first_uses(self, indexes: Sequence[int]) -> set[int]:
        first: dict[str, int] = {}
        for index in indexes:
            verb = self._calls[index].verb
            if isinstance(verb, Script):
                first.setdefault(verb.sha, index)
        return set(first.values())

    def _is_final(self, index: int, error: hiredis.ReplyError, host: str) -> bool:
        """Record *error*; return whether it is the outcome of this call."""
        kind, _, detail = str(error).partition(" ")
        if kind == "NOSCRIPT":
            self._source.add(index)
        elif kind in ("MOVED", "ASK"):
            slot, _, address = detail.partition(" ")
            name, _, port = address.rpartition(":")
            slot_map = self.moved if kind == "MOVED" else self._ask
            slot_map[int(slot) if kind == "MOVED" else index] = (name or host, int(port))
            self._redirected += 1
            if self._redirected > _REDIRECTIONS * len(self._calls):
                self._reason, self.pause = StoreUnavailable(f"nodes disagree: {error}"), True
        else:
            meaning = translate(error, self._calls[index].keys)
            if not isinstance(meaning, StoreUnavailable):
                self.outcomes[index] = meaning
                return True
            self._reason, self.pause = meaning, True
        return False

    def _broken(self, indexes: Sequence[int]) -> list[int]:
        again = []
        for index in indexes:
            if self._calls[index].repeatable:
                self._reason, self.pause = ReplyLost(_BROKEN), True
                self._lost.add(index)
                again.append(index)
            else:
                self.outcomes[index] = ReplyLost(_BROKEN)
        return again

    def _without_asking(self, indexes: Sequence[int], replies: Sequence[Any]) -> list[Any]:
        rest, kept = list(replies), []
        for index in indexes:
            if self._ask.pop(index, None) and rest:
                rest.pop(0)
            if rest:
                kept.append(rest.pop(0))
        return kept


def decoded(call: Call[Any], reply: Any) -> Outcome:
    """Return the decoded *reply*, or the error that the decoder raised."""
    try:
        return call.decode(reply)
    except TamboError as error:
        return error


def slot_of(key: str) -> int:
    """Return the cluster slot of *key*, by its hash tag if it has one."""
    _, brace, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if brace and closed and tag else key).encode(), 0) % _SLOTS
