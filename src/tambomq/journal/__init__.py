"""The journal: what passed through a queue, kept in order, whatever became of it there."""

from __future__ import annotations

from tambomq.journal.recording import Bounds

__all__ = ["Bounds"]
