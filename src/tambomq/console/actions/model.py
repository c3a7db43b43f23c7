"""The values of actions and of dead letters. Units are as in `tambomq.console.model`."""

from __future__ import annotations

from typing import Literal

import msgspec

from tambomq.console.model import Series


class LetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one queue that died alike."""

    id: str
    """Stable while the letters are; a selection names it."""
    queue: str
    reason: str
    shape: str
    """The error with what differs from case to case left out: ``<n>``, ``<id>``."""
    name: str | None
    count: int
    first_ms: int | None
    last_ms: int | None


class DeadLetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What died of what."""

    at_ms: int
    total: int
    by_queue: dict[str, int]
    by_reason: dict[str, int]
    groups: list[LetterGroup]
    """The largest first."""
    per_minute: Series
    """Deaths of the last hour, a line for each reason."""
    looked_at: int
    cut_off: bool = False
    """There are more letters than were looked at."""


class LetterSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. Those that die later never are."""

    queue: str | None = None
    groups: list[str] = []
    reasons: list[str] = []
    ids: list[str] = []
    """``queue`` must be given with ids."""
    find: str = ""


class LetterSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters, counted exactly and fixed when selected."""

    id: str
    at_ms: int
    count: int
    by_queue: dict[str, int]
    by_name: dict[str, int]
    dry_run: str
    """A sentence: what replaying them would do."""
    warning: str = ""
    """``The cause is still there: 96 % of the queue's runs fail now.``"""
    cut_off: bool = False
    """More match than one selection may hold."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An action on many messages that goes on in the background."""

    id: str
    verb: str
    queue: str
    wanted: int
    done: int
    failed: int
    state: Literal["running", "done", "stopped", "undone"]
    text: str
    """A sentence for the toast."""
    undo_until_ms: int | None = None


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did."""

    text: str
    """A sentence: ``Paused chasqui:payments.``"""
    count: int | None = None
    id: str | None = None
    """Of the message that was sent."""
    operation: Operation | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action that somebody took, or was refused."""

    at_ms: int
    user: str
    role: str
    address: str
    verb: str
    target: str
    outcome: Literal["done", "refused", "failed"]
    detail: str = ""
