"""The commands that wait until writes are durable, and what their replies prove. No socket.

``WAIT`` and, with ``appendfsync always``, ``WAITAOF`` are believed. With ``everysec`` WAITAOF is
not: Redis 7.4.0 to 7.4.2 and Valkey up to 9.1 confirm writes up to a second before their fsync.
So the server is observed around a pause. Its main thread starts an fsync in each turn of its loop
if the last one began a second ago and none is pending. If none was pending just after the write,
the write went to the file in that turn. If none was pending at two later observations, a second
after that and with a turn between them, then the one that the write was due for has ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import hiredis

from tambomq.store.durability.level import Durability

POLICY: Final = ("CONFIG", "GET", "appendfsync")
ALWAYS: Final = "always"

_IDLE: Final = re.compile(rb"^aof_pending_bio_fsync:0\s*$", re.MULTILINE)
_FINE: Final = re.compile(rb"^aof_last_write_status:ok\s*$", re.MULTILINE)
# A client that waits for more replicas than there can be pauses, and only its connection does.
_NEVER: Final = 9999
_SHORT_MS, _LONG_MS = 60, 1100
_BEFORE, _AFTER = 3, 4
"""Observations before the pause and after it: an fsync may be pending at some of them."""
_SLOW: Final = "the disk of the server is slow: its fsync has not ended in time"


class Proof(NamedTuple):
    """How many copies are durable, and why these are not enough, if so."""

    copies: int
    why: str = ""


class Wait:
    """Waits for what *asked* says; *policy* is the server's ``appendfsync``, if known."""

    def __init__(self, asked: Durability, policy: str = "") -> None:
        self.asked = asked
        self._observes = not asked.replicas and policy != ALWAYS
        commands: list[tuple[str | int, ...]] = [asked.command(asked.timeout_s)]
        if self._observes:
            commands = [*_observations(), *commands]
        elif not asked.replicas:
            commands.append(POLICY)
        self.packed = b"".join(map(hiredis.pack_command, commands))
        self.due = len(commands)
        """How many replies it has."""

    def proof(self, replies: Sequence[Any]) -> Proof:
        """Judge the replies to `packed`."""
        if self._observes:
            return self._observed(replies)
        if refusal := first_error(replies):
            return Proof(0, str(refusal))
        if self.asked.replicas:
            found = int(replies[0])
            return Proof(found, "" if found >= self.asked.replicas else self._too_few(found))
        if policy_of(replies[1]) != ALWAYS:
            return Proof(0, "appendfsync was changed meanwhile")
        return self._local(replies[0])

    def _observed(self, replies: Sequence[Any]) -> Proof:
        if refusal := first_error(replies):
            return Proof(0, str(refusal))
        states = replies[:-1:2]
        idle = [bool(_IDLE.search(state)) for state in states]
        ended = any(a and b for a, b in pairwise(idle[_BEFORE:]))
        if not any(idle[:_BEFORE]) or not ended:
            return Proof(0, _SLOW)
        if not _FINE.search(states[-1]):
            return Proof(0, "the server cannot write its append-only file: aof_last_write_status")
        return self._local(replies[-1])

    def _local(self, reply: Sequence[int]) -> Proof:
        if reply[0] >= 1:
            return Proof(1)
        return Proof(0, f"the disk of the server does not have it within {self._limit}")

    def _too_few(self, found: int) -> str:
        return f"{found} of {self.asked.replicas} replicas have it within {self._limit}"

    @property
    def _limit(self) -> str:
        return f"{self.asked.timeout_s:g} s"


def _observations() -> list[tuple[str | int, ...]]:
    """Return INFO and pauses in turn: the long pause after the first `_BEFORE` observations."""
    pauses = [_SHORT_MS] * (_BEFORE + _AFTER)
    pauses[_BEFORE - 1] = _LONG_MS
    commands: list[tuple[str | int, ...]] = []
    for pause_ms in pauses:
        commands += (("INFO", "persistence"), ("WAIT", _NEVER, pause_ms))
    return commands


def first_error(replies: Sequence[Any]) -> hiredis.ReplyError | None:
    """Return the first reply that is an error."""
    return next((each for each in replies if isinstance(each, hiredis.ReplyError)), None)


def policy_of(reply: Any) -> str:
    """Return ``appendfsync`` from the reply to `POLICY`; empty if an ACL hides it."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else ""
