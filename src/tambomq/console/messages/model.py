"""The values of message lists and message pages. Units are as in `tambomq.console.model`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MessageState = Literal["visible", "in_flight", "delayed", "dead", "done"]


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a list."""

    queue: str
    id: str
    name: str | None = None
    state: MessageState
    attempt: int | None = None
    """Runs or deliveries so far."""
    max_attempts: int | None = None
    added_ms: int | None = None
    due_ms: int | None = None
    """When it becomes visible: delayed, or in flight and not settled."""
    died_ms: int | None = None
    ended_ms: int | None = None
    """When it completed, was cancelled or was delivered, if it is done."""
    holder: str | None = None
    size_bytes: int | None = None
    error: str | None = None
    preview: str = ""
    """The beginning of the body, in one line."""
    letter_id: str | None = None
    """Of a dead letter: what identifies it among the letters of its queue, for a selection."""


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a queue in one state."""

    queue: str
    state: MessageState
    rows: list[MessageRow]
    next: str | None
    """Give it as ``cursor`` for what follows; `None` at the end."""
    total: int | None
    """How many there are in this state; `None` if that is not known."""
    looked_at: int
    """How many messages were looked at for this page."""
    cut_off: bool = False
    """A search that stopped at its limit: ``next`` goes on."""
    note: str = ""
    """Why there is nothing to see, if the protocol is the reason."""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A body, decoded in each way that is possible. A message body is hostile input."""

    size_bytes: int
    cut_off: bool
    """Only the first part is here."""
    best: Literal["json", "msgpack", "text", "hex"]
    json: str | None = None
    """Indented."""
    msgpack: str | None = None
    """As indented JSON; what JSON has no form for is written as text."""
    text: str | None = None
    hex: str = ""
    """Lines of offset, bytes and printable characters."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that a message has to pass before it runs."""

    name: str
    now: str
    verdict: Literal["holds", "next", "open"]
    """``holds`` it now, holds it ``next``, or is ``open``."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is not running."""

    headline: str
    """A sentence: ``It waits for its 6th run, due in 2 m 14 s.``"""
    detail: str = ""
    gates: list[Gate] = []


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a message, or will."""

    at_ms: int | None
    kind: Literal["added", "due", "started", "failed", "done", "dead", "other", "future"]
    text: str
    source: Literal["events", "journal", "state"] = "events"


class MessageDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one message."""

    at_ms: int
    row: MessageRow
    why: Explanation
    body: Body | None
    facts: list[tuple[str, str]]
    """Pairs of label and value, ready to show."""
    headers: list[tuple[str, str]] = []
    timeline: list[TimelineEntry] = []
    """Newest first."""
    timeline_note: str = ""
    """What the timeline cannot show, and why."""
    commands: list[tuple[str, str]] = []
    """Pairs of what it shows and a ``redis-cli`` command that only reads."""
    logs: list[str] = []
    progress: Any = None
    actions: list[str] = []
    """What can be done to it: ``run_now``, ``edit``, ``cancel``, ``delete``, ``replay``."""
