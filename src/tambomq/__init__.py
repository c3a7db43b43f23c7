"""Four message-queue protocols, one Redis."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("tambomq")
