"""Real servers for tests: their binaries, processes, and helpers that wait for them."""

from __future__ import annotations

from tests.servers.poll import eventually, eventually_async
from tests.servers.run import Server

__all__ = ["Server", "eventually", "eventually_async"]
