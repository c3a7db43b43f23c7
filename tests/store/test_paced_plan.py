from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tambomq.errors import WrongType
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome, Plan, results
from tambomq.store.paced_plan import PacedPlan
from tests.servers import Server


def increments(times: int) -> Plan[int]:
    last = 0
    for _ in range(times):
        (last,) = results((yield (Call("INCR", ("n",), (), int),)))
    return last


async def test_a_plan_goes_on_where_it_stopped(server: Server) -> None:
    store = AsyncStore(server.url)
    plan = PacedPlan(lambda: increments(5), 2)
    # The last part finds that the plan has ended; the next one begins anew.
    assert [await plan.go_on(store) for _ in range(4)] == [None, None, 5, None]
    await store.close()


async def test_after_an_error_a_new_plan_begins(server: Server) -> None:
    store = AsyncStore(server.url)
    await store.run(Call("LPUSH", ("n",), ("x",), int))
    plan = PacedPlan(lambda: increments(2), 10)
    with pytest.raises(WrongType):
        await plan.go_on(store)
    await store.run(Call("DEL", ("n",), (), int))
    assert await plan.go_on(store) == 2
    await store.close()


class StuckStore(AsyncStore):
    """A store whose first round trip never ends."""

    is_stuck = False

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Wait for ever, then make all further trips."""
        if not self.is_stuck:
            self.is_stuck = True
            await asyncio.Event().wait()
        return await super().outcomes(calls)


async def test_after_a_cancelled_round_trip_a_new_plan_begins(server: Server) -> None:
    store = StuckStore(server.url)
    plan = PacedPlan(lambda: increments(2), 10)
    stuck = asyncio.create_task(plan.go_on(store))
    await asyncio.sleep(0)
    assert store.is_stuck
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    assert await plan.go_on(store) == 2
    await store.close()
