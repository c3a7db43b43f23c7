"""Alarms and measured values: values only, with the sentences that are logged and shown."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tambomq.text import in_units

Kind = Literal["memory", "disk", "queue_length"]

KINDS: Final[tuple[Kind, ...]] = ("memory", "disk", "queue_length")

_ADVICE: Final[dict[Kind, str]] = {
    "memory": "add consumers, delete messages, or raise maxmemory",
    "disk": "free space on this disk, or move the data to a larger one",
    "queue_length": "add consumers, or purge the queue",
}


class AlarmLimits(msgspec.Struct, frozen=True):
    """The value at which an alarm is raised, and the one at which it is cleared.

    A value that must not grow is cleared at a lower one, free space at a higher one.
    """

    raise_at: float
    clear_at: float


class AlarmValue(msgspec.Struct, frozen=True):
    """A measured value."""

    kind: Kind
    subject: str
    """The directory of a disk, or the queue as ``<protocol>:<name>``; empty for memory."""
    value: float
    """Bytes used, bytes free, or messages."""
    limits: AlarmLimits


class Alarm(msgspec.Struct, frozen=True):
    """A value that is beyond its limit."""

    kind: Kind
    subject: str
    value: float
    raise_at: float
    clear_at: float

    def stops(self, queue: str) -> bool:
        """Whether producers of *queue*, as ``<protocol>:<name>``, must stop.

        KqueueMsgQ stores nothing, so nothing stops it.
        """
        if queue.startswith("kqueue:"):
            return False
        return self.kind != "queue_length" or self.subject == queue

    @property
    def values(self) -> str:
        """What was measured."""
        if self.kind == "memory":
            return f"memory has {in_units(self.value)} in use"
        if self.kind == "disk":
            return f"the disk of {self.subject} has {in_units(self.value)} free"
        return f"queue {self.subject} has {self.value:,.0f} messages"

    @property
    def text(self) -> str:
        """What is wrong, with the values."""
        if self.kind == "queue_length":
            limit, clear = f"{self.raise_at:,.0f}", f"below {self.clear_at:,.0f}"
        else:
            limit, clear = in_units(self.raise_at), in_units(self.clear_at)
            clear = f"at {clear}" if self.kind == "disk" else f"below {clear}"
        bound = "the minimum" if self.kind == "disk" else "the limit"
        return f"{self.values}, {bound} is {limit}; it is cleared {clear}"

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self.kind]
