"""The optional commands of a server. Detected by COMMAND, never by version.

A version says little: Redis and Valkey count separately, and hosting providers disable commands.
A server that does not answer COMMAND is used without optional commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.call import Call, Outcome, Plan

_UNKNOWN = re.compile(
    "Invalid stream ID|syntax error|unknown command|Unknown Redis command", re.IGNORECASE
)
"""Error texts of servers that do not know ``IDMP``, ``CLAIM`` or ``XACKDEL``."""


class Features(msgspec.Struct, frozen=True):
    """The optional commands of a server. Scripts replace those that are missing."""

    xackdel: bool = False
    """``XACKDEL``: acknowledge and delete in one step."""
    idmp: bool = False
    """``XADD … IDMP``: an entry that is added twice is stored once."""
    claim: bool = False
    """``XREADGROUP … CLAIM``: also read entries that have been pending for too long."""


def features() -> Plan[Features]:
    """Return the features of the server, in one round trip."""
    known = Call("COMMAND INFO", (), ("xackdel",), _known, repeatable=True)
    tokens = Call("COMMAND DOCS", (), ("xadd", "xreadgroup"), _tokens, repeatable=True)
    outcomes = yield (known, tokens)
    names: set[str] = _or_nothing(outcomes[0], set())
    of: dict[str, set[str]] = _or_nothing(outcomes[1], {})
    return Features(
        xackdel="xackdel" in names,
        idmp="IDMP" in of.get("xadd", ()),
        claim="CLAIM" in of.get("xreadgroup", ()),
    )


def is_cluster() -> Call[bool]:
    """Return whether the server is a cluster, where a script can reach only one slot."""
    return Call(
        "INFO",
        ("cluster",),
        (),
        decode=lambda reply: b"cluster_enabled:1" in reply,
        repeatable=True,
    )


def is_outdated(outcomes: Iterable[Outcome]) -> bool:
    """Whether the server lacks a feature that was detected: after a failover, detect again."""
    return any(type(each) is StoreError and _UNKNOWN.search(str(each)) for each in outcomes)


def _or_nothing(outcome: Outcome, nothing: Any) -> Any:
    if isinstance(outcome, StoreUnavailable):
        raise outcome
    return nothing if isinstance(outcome, StoreError) else outcome


def _known(reply: list[Any]) -> set[str]:
    """Decode COMMAND INFO: for each command a list that begins with its name, or nil."""
    return {entry[0].decode().lower() for entry in reply if entry}


def _tokens(reply: list[Any]) -> dict[str, set[str]]:
    """Decode COMMAND DOCS: the tokens of each command, at any depth of its grammar."""
    return {
        name.decode().lower(): set(_words(docs))
        for name, docs in zip(reply[::2], reply[1::2], strict=True)
    }


def _words(described: list[Any]) -> Iterator[str]:
    fields = dict(zip(described[::2], described[1::2], strict=True))
    if b"token" in fields:
        yield fields[b"token"].decode().upper()
    for argument in fields.get(b"arguments", ()):
        yield from _words(argument)
