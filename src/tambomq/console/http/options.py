"""The options of the console: tokens, read-only mode, and the names it may be called by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SESSION_S: Final = 12 * 3600.0
"""A log-in lasts a working day."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How the console is protected. Without any token there is no log-in."""

    host: str = "127.0.0.1"
    """Where it listens."""
    operator_token: str | None = field(default=None, repr=False)
    viewer_token: str | None = field(default=None, repr=False)
    has_users: bool = False
    """Whether there are users with tokens of their own."""
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names in a request's Host besides loopback names and *host*."""
    session_s: float = SESSION_S
    max_viewers: int = 100
    """Pages that may be updated live at the same time."""

    @property
    def needs_login(self) -> bool:
        """Whether callers have to show a token."""
        return bool(self.operator_token or self.viewer_token or self.has_users)
