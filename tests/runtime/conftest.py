"""The fixtures of the store, which heartbeats go through."""

from __future__ import annotations

from tests.store.conftest import open_store, proxy, store

__all__ = ["open_store", "proxy", "store"]
