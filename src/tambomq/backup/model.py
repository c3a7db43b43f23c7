"""What a backup is, as it says itself."""

from __future__ import annotations

from typing import Final

import msgspec

FORMAT: Final = 1
"""Raised when a reader of today could not understand what is written then."""


class ProtocolCount(msgspec.Struct, frozen=True):
    """What there is of one protocol."""

    queues: int
    messages: int
    """Stored ones: waiting, running, delayed and dead."""


class BackupCounts(msgspec.Struct, frozen=True):
    """What a server has that has loaded the backup."""

    keys: int
    """Of all databases, expired ones included."""
    expired: int
    """Those of them that had expired when they were loaded."""
    protocols: dict[str, ProtocolCount]

    def difference(self, expected: BackupCounts) -> str:
        """Return what is not as *expected*; empty if all is.

        Messages are compared only if no key has expired since, and with it what was in it.
        """
        if self.keys != expected.keys:
            return f"{self.keys} keys, not {expected.keys}"
        if self.expired != expected.expired:
            return ""
        for name, protocol in expected.protocols.items():
            found = self.protocols.get(name, ProtocolCount(0, 0)).messages
            if found != protocol.messages:
                return f"{found} messages of {name}, not {protocol.messages}"
        return ""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says about itself."""

    format: int = FORMAT
    taken_ms: int
    """The moment of the data, by the server's clock, to the second."""
    tambo: str
    """The version of TamboMQ that wrote it."""
    server: str
    """Name and version of the server that the data comes from."""
    rdb_bytes: int
    sha256: str
    """Of the RDB file."""
    db: int = 0
    """The database whose queues are counted."""
    contents: BackupCounts | None
    """`None` if it was not verified."""
