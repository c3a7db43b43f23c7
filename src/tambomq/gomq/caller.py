"""Who calls: an address, or a token that outlives a connection; and whether it is let in."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tambomq.errors import BrokerRefused, InvalidFormat

PEER: Final = "x-gomq-peer"
"""Request: a name for the peer, in place of its address."""
ACK: Final = "x-gomq-ack"
"""Request to Observe: the last batch that arrived, or empty. Asks for batches to be kept."""
MAX: Final = "x-gomq-max"
"""Request to Observe: at most so many records of a key; 0 acknowledges and takes nothing."""
BATCH: Final = "x-gomq-batch"
"""Reply of Observe: the batch to acknowledge."""
_TOKEN_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class Caller:
    """One call's origin, and what its reply says beside the message."""

    peer: str
    ack: str | None = None
    most: int | None = None
    """Records of a key that it wants at most."""
    reply: dict[str, str] = field(default_factory=dict)
    """Metadata for the reply."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets callers in: all, or those with the bearer *token*."""

    token: str | None = field(default=None, repr=False)

    def admit(self, address: str, metadata: Mapping[str, str]) -> Caller:
        """Return who calls from *address*, ``host:port``.

        Names of *metadata* are in lower case. Raises `BrokerRefused` and `InvalidFormat`.
        """
        if self.token is not None:
            given = metadata.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                raise BrokerRefused("call", "UNAUTHENTICATED", "a valid bearer token is needed")
        name = metadata.get(PEER)
        if name is not None:
            _check(name)
        # A batch is kept for a peer that can come back from another port.
        return Caller(name or address, metadata.get(ACK) if name else None, _most(metadata))


def _most(metadata: Mapping[str, str]) -> int | None:
    text = metadata.get(MAX)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > len("999999999"):
        raise InvalidFormat(MAX, text, "a number")
    return int(text)


def _check(name: str) -> None:
    # An address has a colon: nobody takes another's queue by calling itself its address. Without
    # an underscore, the peer in the name of a dedicated queue is what follows the last one.
    is_sound = name.isprintable() and not {":", "_"}.intersection(name)
    if not name or len(name) > _TOKEN_CHARS or not is_sound:
        rule = f"1 to {_TOKEN_CHARS} printable characters, no colon and no underscore"
        raise InvalidFormat(PEER, name, rule)
