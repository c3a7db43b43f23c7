"""A round trip whose writes count only once the server has confirmed them, without a socket.

Each exchange with a node is one packet on one connection:

    INFO replication · the calls · barrier · the wait (`waits`) · INFO replication

The barrier is a tiny write. WAIT and WAITAOF wait for the last write of their connection, and a
call that is repeated may write nothing: the barrier comes after whatever it found there. A server
gets a new replication id whenever it is promoted. So if it is a primary with the same id before and
after, no failover came between the calls and the wait, and what is confirmed includes them. If it
is another, or the connection broke, nothing is confirmed: repeatable calls are sent again, for the
others the outcome is `NotDurable` if they were done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import hiredis

from tambomq.errors import NotDurable, StoreUnavailable, TamboError
from tambomq.store.call import Call
from tambomq.store.durability.waits import Proof, Wait, first_error
from tambomq.store.keys import barrier
from tambomq.store.roundtrip import RoundTrip
from tambomq.store.server_errors import is_transient

HISTORY: Final = ("INFO", "replication")
_ROLE: Final = re.compile(rb"^role:master\s*$", re.MULTILINE)
_ID: Final = re.compile(rb"^master_replid:(\w+)", re.MULTILINE)
# The key is ours alone, but nothing forbids a queue to have its name: leave that as it is.
_BARRIER: Final = """#!lua flags=allow-oom
return redis.call('SET', KEYS[1], '', 'NX') and redis.call('DEL', KEYS[1]) or 0"""
_INFO: Final = hiredis.pack_command(HISTORY)
_BEFORE, _AFTER = 1, 2
"""Replies before those of the calls, and after them: of the barrier and of INFO."""

_BROKE: Final = "the connection broke while waiting"
_CHANGED: Final = "the server was replaced by another while waiting (a failover)"


class DurableRoundTrip(RoundTrip):
    """Calls of one round trip that wait until their writes are durable."""

    __slots__ = ("_done", "_wait", "unconfirmed")

    def __init__(self, calls: Sequence[Call[Any]], wait: Wait) -> None:
        """Send the source with the first use of a script: a repeated wait may take a second."""
        super().__init__(calls)
        self._source = self._first_uses(self.pending)
        self._wait = wait
        self._done: dict[int, Any] = {}
        self.unconfirmed: dict[int, NotDurable] = {}
        """By index why a call that was done is not known to be durable."""

    def pack(self, indexes: Sequence[int]) -> tuple[bytes, int]:
        """Return the calls at *indexes* with their confirmation, and how many replies to expect."""
        packed, due = super().pack(indexes)
        key = self._first_key(indexes)
        if key is None:
            return packed, due
        write = hiredis.pack_command(("EVAL", _BARRIER, 1, barrier(key)))
        commands = (_INFO, packed, write, self._wait.packed, _INFO)
        return b"".join(commands), _BEFORE + due + _AFTER + self._wait.due

    def on_replies(
        self, indexes: Sequence[int], replies: Sequence[Any], host: str = ""
    ) -> list[int]:
        """Process the replies to `pack(indexes)`; return the indexes that need another round."""
        if self._first_key(indexes) is None:
            return super().on_replies(indexes, replies, host)
        due = len(indexes) + len(self._ask.keys() & set(indexes))
        own, waited = replies[_BEFORE : _BEFORE + due], replies[_BEFORE + due :]
        again = super().on_replies(indexes, own, host)
        left = set(again)
        done = [
            index
            for index in indexes
            if index not in left and not isinstance(self.outcomes[index], TamboError)
        ]
        for index in done:
            self._done[index] = self.outcomes[index]
        if len(waited) < _AFTER + self._wait.due:
            return again + self._unproven(done, _BROKE)
        return again + self._judged(done, replies[0], waited)

    def give_up(self) -> None:
        """Fail the calls that are still pending; those that were done once are not durable."""
        for index in self._done.keys() & set(self.pending):
            self._fail(index, Proof(0, f"{_BROKE}; since then: {self._reason}"))
        self.pending = [index for index in self.pending if index not in self.unconfirmed]
        super().give_up()

    def _judged(self, done: Sequence[int], before: Any, waited: Sequence[Any]) -> list[int]:
        """Judge a complete exchange; return the indexes of calls to repeat."""
        written, *replies, after = waited
        refusal, lived = first_error(waited), history(before)
        if lived is None or lived != history(after) or (refusal and is_transient(refusal)):
            return self._unproven(done, str(refusal or _CHANGED))
        proof = self._wait.proof(replies)
        if written != 1:
            proof = Proof(0, str(refusal or "the key of its barrier exists"))
        if proof.why:
            for index in done:
                self._fail(index, proof)
        return []

    def _unproven(self, done: Sequence[int], why: str) -> list[int]:
        """Repeat what can be repeated, on a new connection; the rest was done once, at least."""
        again = []
        for index in done:
            if self._calls[index].repeatable:
                self._reason, self.pause = StoreUnavailable(why), True
                again.append(index)
            else:
                self._fail(index, Proof(0, why))
        return again

    def _fail(self, index: int, proof: Proof) -> None:
        self.outcomes[index] = self._done[index]
        asked = self._wait.asked
        self.unconfirmed[index] = NotDurable(
            asked.level, proof.why, acknowledged=proof.copies, wanted=asked.wanted
        )

    def _first_key(self, indexes: Sequence[int]) -> str | None:
        """Return a key of the node that the calls at *indexes* go to; `None` if they have none."""
        keys = (self._calls[index].keys for index in indexes)
        return next((each[0] for each in keys if each), None)


def history(reply: Any) -> bytes | None:
    """Return the replication id from the reply to `HISTORY`; `None` unless it is a primary."""
    text = reply if isinstance(reply, bytes) else b""
    found = _ID.search(text)
    return found[1] if found and _ROLE.search(text) else None
