"""The keys that belong to no protocol. No other file spells one."""

from __future__ import annotations

from typing import Final

PROBE: Final = "tambo:probe"
"""String, gone after a few seconds: whether the server takes writes."""
