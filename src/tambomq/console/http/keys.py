"""Redis keys and fields of the console. No other file spells one."""

from __future__ import annotations

from typing import Final

AUDIT: Final = "{tambo:console}:audit"
"""Stream of what was done with the console, and of what was refused. Bounded."""

ENTRY: Final = "entry"
"""Field of an entry of that stream: an `AuditEntry` as JSON."""
