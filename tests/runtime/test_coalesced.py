from __future__ import annotations

import asyncio

import pytest

from tambomq.runtime.coalesced import Coalesced


async def test_a_value_is_kept_for_its_time_and_then_found_anew() -> None:
    found = iter(range(10))

    async def find() -> int:
        return next(found)

    kept, fleeting = Coalesced(find, 60), Coalesced(find, 0)
    assert [await kept.get(), await kept.get()] == [0, 0]
    assert [await fleeting.get(), await fleeting.get()] == [1, 2]
    kept.invalidate()
    assert await kept.get() == 3


async def test_a_value_that_could_not_be_found_is_looked_for_again() -> None:
    tries = iter(range(2))

    async def find() -> int:
        if next(tries) == 0:
            raise ValueError("no")
        return 5

    value = Coalesced(find, 60)
    with pytest.raises(ValueError, match="no"):
        await value.get()
    assert await value.get() == 5


async def test_a_cancelled_caller_does_not_cancel_the_check_of_the_others() -> None:
    go = asyncio.Event()

    async def find() -> int:
        await go.wait()
        return 5

    value = Coalesced(find, 60)
    leaver, stayer = (asyncio.ensure_future(value.get()) for _ in range(2))
    await asyncio.sleep(0)
    leaver.cancel()
    go.set()
    assert await stayer == 5
