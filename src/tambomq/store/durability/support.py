"""Checks before the first durable call that the server can confirm a level, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tambomq.errors import DurabilityUnsupported, StoreRefused, StoreUnavailable, TamboError
from tambomq.store.call import Call, Outcome
from tambomq.store.durability.confirmation import HISTORY, history
from tambomq.store.durability.level import Durability
from tambomq.store.durability.waits import POLICY, Wait, policy_of

_OWN_FILE = "appendonly is disabled"
_NO_FILE = (
    "it keeps no append-only file; set appendonly to yes there, or ask for replicas:N or memory"
)
_OLD = "it has no {}, which came with Redis 7.2 and Valkey 7.2; use a newer server, or ask for {}"
_NO_HISTORY = "INFO replication names no replication id, as of a proxy"


def support_calls(durability: Durability) -> list[Call[Any]]:
    """Return the calls that show what the server supports, for `find_wait`."""
    command = durability.command(0.001)
    return [
        Call(HISTORY, (), (), _text, repeatable=True),
        Call(str(command[0]), (), command[1:], _answered, repeatable=True),
        Call(POLICY, (), (), policy_of, repeatable=True),
    ]


def find_wait(durability: Durability, outcomes: Sequence[Outcome]) -> Wait:
    """Return the wait for this server; the one that fits all if it is a replica at the moment.

    Raises `DurabilityUnsupported`, and `StoreRefused` if an ACL forbids the commands.
    """
    found, answer, policy = outcomes
    for outcome in (found, answer):
        if isinstance(outcome, StoreUnavailable | StoreRefused):
            raise outcome
    # An ACL may forbid CONFIG.
    wait = Wait(durability, "" if isinstance(policy, TamboError) else policy)
    if isinstance(found, TamboError) or b"role:slave" in found:
        return wait
    if history(found) is None:
        raise DurabilityUnsupported(durability.level, _NO_HISTORY)
    if isinstance(answer, TamboError):
        command = str(durability.command(1)[0])
        raise DurabilityUnsupported(durability.level, _reason(command, answer))
    return wait


def _reason(command: str, answer: Outcome) -> str:
    text = str(answer)
    if _OWN_FILE in text:
        return _NO_FILE
    if "unknown command" in text.lower():
        return _OLD.format(command, "memory" if command == "WAIT" else "replicas:N or memory")
    return text


def _text(reply: Any) -> bytes:
    return reply if isinstance(reply, bytes) else b""


def _answered(_: Any) -> bool:
    return True
