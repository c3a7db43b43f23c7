"""A plan that is followed a bounded number of round trips at a time, such as a scan of all keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Outcome, Plan

T = TypeVar("T")


class PacedPlan(Generic[T]):
    """Follows the plans that *make* makes, one after the other, *round_trips* at a time."""

    def __init__(self, make: Callable[[], Plan[T]], round_trips: int) -> None:
        self._make, self._round_trips = make, round_trips
        self._plan: Plan[T] | None = None
        self._outcomes: list[Outcome] | None = None

    async def go_on(self, store: AsyncStore) -> T | None:
        """Continue; return the result at the end of a plan, else `None`.

        After an error, or if it is cancelled, the next call starts a new plan. It has one caller
        at a time.
        """
        for _ in range(self._round_trips):
            if self._plan is None:
                self._plan, self._outcomes = self._make(), None
            try:
                calls = self._plan.send(self._outcomes)  # type: ignore[arg-type]
            except StopIteration as end:
                self._plan = None
                result: T = end.value
                return result
            except TamboError:
                self._plan = None
                raise
            plan, self._plan = self._plan, None
            self._outcomes = await store.outcomes(list(calls))
            # Without its outcomes a plan cannot go on: if they never come, it is given up.
            self._plan = plan
        return None
