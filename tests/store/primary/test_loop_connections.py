"""The sentinels are asked for as long as there is a connection, or one is being opened."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tambomq.store.primary import loop_connections
from tambomq.store.primary.loop_connections import LoopConnections


class Connection:
    """What `LoopConnections` asks of a connection, or of a pub/sub connection."""

    is_usable, is_open = True, False

    def close(self) -> None:
        self.is_usable = False


async def test_a_connection_that_opens_while_the_timer_runs_out_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_connections, "CHECK_EVERY_S", 0.01)
    former: Any = Connection()
    state = LoopConnections(former)
    state.connections[None] = former
    asked = asyncio.Semaphore(0)

    async def refresh() -> None:
        asked.release()

    async def ask() -> None:
        async with asyncio.timeout(60):
            await asked.acquire()

    state.watch(refresh)
    await ask()
    # Another is opened: it finds the timer running, and the timer finds no usable connection.
    former.close()
    opens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    opened: Any = asyncio.ensure_future(_opened(opens, partial(state.watch, refresh)))
    state.opening[None] = opened
    opened.add_done_callback(partial(state.opened, None))
    for _ in range(3):
        await ask()
    opens.set_result(None)
    await opened
    for _ in range(3):
        await ask()
    state.close()


async def _opened(opens: asyncio.Future[None], watch: Any) -> Connection:
    watch()
    await opens
    return Connection()
