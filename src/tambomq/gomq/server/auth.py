"""Who calls: an address, or a token that outlives a connection; and whether it is let in."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from tambomq.errors import BrokerRefused, InvalidFormat, LimitReached

PEER: Final = "x-gomq-peer"
"""Request: a name for the peer, in place of its address."""
ACK: Final = "x-gomq-ack"
"""Request to Observe: the last batch that arrived, or empty. Asks for batches to be kept."""
MAX: Final = "x-gomq-max"
"""Request to Observe: at most so many records of a key; 0 acknowledges and takes nothing."""
BATCH: Final = "x-gomq-batch"
"""Reply of Observe: the batch to acknowledge."""
TIMEOUT: Final = "x-gomq-timeout"
"""Reply of Observe with a batch: a peer that is silent for so many seconds is disconnected."""
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
    address: str = ""
    """Where a peer with a name calls from: its connection."""


class Names:
    """Which names of peers each connection uses: at most *most* within *keep_s* seconds."""

    def __init__(self, most: int, keep_s: float) -> None:
        self._most, self._keep_s, self._swept = most, keep_s, 0.0
        # Of each connection its names, and when each was used: the last at the end.
        self._used: dict[str, dict[str, float]] = {}

    def use(self, caller: Caller, now: float) -> None:
        """Note that *caller* calls. Raises `LimitReached`."""
        if not caller.address:
            return
        self._sweep(now)
        names = self._used.setdefault(caller.address, {})
        if names.pop(caller.peer, None) is None and len(names) >= self._most:
            _forget(names, now - self._keep_s)
            if len(names) >= self._most:
                raise LimitReached("this connection", self._most, "peers")
        names[caller.peer] = now

    def _sweep(self, now: float) -> None:
        if now - self._swept < self._keep_s:
            return
        self._swept = now
        for names in self._used.values():
            _forget(names, now - self._keep_s)
        self._used = {address: names for address, names in self._used.items() if names}


def _forget(names: dict[str, float], before: float) -> None:
    for name in list(takewhile(lambda each: names[each] < before, names)):
        del names[name]


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
        if name is None:
            return Caller(address, None, _most(metadata))
        return Caller(name, metadata.get(ACK), _most(metadata), address=address)


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
