"""What this server can do beyond what all can. Asked by COMMAND, never by version.

A version says little: Redis and Valkey count apart, and providers switch off
commands. A server that does not let us ask can do nothing special.
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
"""So a server says that it does not know ``IDMP``, ``CLAIM`` or ``XACKDEL``."""


class Features(msgspec.Struct, frozen=True):
    """What may be used. All false means: by Lua."""

    xackdel: bool = False
    """``XACKDEL``: acknowledge and delete in one step."""
    idmp: bool = False
    """``XADD … IDMP``: an entry that is added twice is there once."""
    claim: bool = False
    """``XREADGROUP … CLAIM``: read what others have held for too long, too."""


def features() -> Plan[Features]:
    """Ask the server, in one round trip."""
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
    """Whether keys are spread over nodes, where no script can reach them all."""
    return Call(
        "INFO",
        ("cluster",),
        (),
        decode=lambda reply: b"cluster_enabled:1" in reply,
        repeatable=True,
    )


def is_outdated(outcomes: Iterable[Outcome]) -> bool:
    """Whether the server refuses what another could that it has taken over from: ask again."""
    return any(type(each) is StoreError and _UNKNOWN.search(str(each)) for each in outcomes)


def _or_nothing(outcome: Outcome, nothing: Any) -> Any:
    if isinstance(outcome, StoreUnavailable):
        raise outcome
    return nothing if isinstance(outcome, StoreError) else outcome


def _known(reply: list[Any]) -> set[str]:
    """Read COMMAND INFO: a list that begins with the name, or nil, for each command."""
    return {entry[0].decode().lower() for entry in reply if entry}


def _tokens(reply: list[Any]) -> dict[str, set[str]]:
    """Read COMMAND DOCS: the words each command takes, at any depth of its grammar."""
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
