"""A shared time limit: each coroutine has one outcome, whatever races its end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tambomq.runtime.time_limit import TimeLimit


class TooLong(Exception):
    pass


def limit(seconds: float) -> TimeLimit:
    return TimeLimit(seconds, TooLong)


async def returning(value: int, turns: int = 0) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return value


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_call_beyond_its_limit_is_cancelled_and_its_task_continues() -> None:
    short = limit(0.01)
    for _ in range(2):
        with pytest.raises(TooLong):
            await short.run(forever())
        assert await short.run(returning(7, 3)) == 7
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_concurrent_calls_are_cancelled_each_at_its_own_limit() -> None:
    short, order = limit(0.02), list[int]()

    async def run(number: int) -> None:
        try:
            await short.run(forever())
        except TooLong:
            order.append(number)

    await asyncio.gather(*(run(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert not short._running
    assert short._timer is None


async def test_a_call_that_catches_its_cancellation_returns_its_value() -> None:
    async def stubborn() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    assert await limit(0.01).run(stubborn()) == "done all the same"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_its_own_is_raised_as_it_is() -> None:
    async def failing() -> None:
        raise TimeoutError("of a database")

    with pytest.raises(TimeoutError, match="of a database"):
        await limit(60).run(failing())


async def test_a_cancellation_from_outside_is_no_time_out() -> None:
    long = limit(3600)
    task = asyncio.create_task(long.run(forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not long._running


async def test_a_cancellation_from_outside_counts_more_than_a_time_out() -> None:
    short = limit(0.01)

    async def lingering() -> None:
        try:
            await forever()
        finally:
            # The time is over; now the worker ends, too.
            running.cancel()
            await asyncio.sleep(0)

    running = asyncio.create_task(short.run(lingering()))
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_limit_within_a_limit_ends_the_inner_one_only() -> None:
    inner, outer = limit(0.01), limit(3600)

    async def both() -> str:
        try:
            await inner.run(forever())
        except TooLong:
            return "inner"
        return "none"

    assert await outer.run(both()) == "inner"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_racing_ends_have_one_outcome_each(seed: int) -> None:
    draw = random.Random(seed)

    async def race() -> Counter[str]:
        short, outcomes, runs = limit(0.002), Counter[str](), Counter[int]()

        async def one(number: int) -> None:
            try:
                await short.run(ending(number, 0.002 + draw.uniform(-0.0005, 0.0005)))
            except TooLong:
                outcomes["timed out"] += 1
            except asyncio.CancelledError:
                outcomes["cancelled"] += 1
            else:
                outcomes["returned"] += 1

        async def ending(number: int, after_s: float) -> None:
            await asyncio.sleep(after_s)
            runs[number] += 1

        tasks = [asyncio.create_task(one(number)) for number in range(40)]
        loop = asyncio.get_running_loop()
        for task in tasks[:10]:
            loop.call_later(0.002 + draw.uniform(-0.0005, 0.0005), task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        # What had ended counts as ended: only a cancellation from outside may come after it.
        assert outcomes["returned"] <= len(runs) <= outcomes["returned"] + 10
        assert not short._running
        return outcomes

    assert asyncio.run(race()).total() <= 40
