"""The blocking client of durable calls: each thread waits on a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tambomq.errors import BatchIncomplete
from tambomq.store.call import Call, Outcome, Plan
from tambomq.store.durability.confirmation import DurableRoundTrip
from tambomq.store.durability.level import TIMEOUT_S, Durability
from tambomq.store.durability.results import CallConfirmation, PlanConfirmation, patient
from tambomq.store.durability.stores import StoresByLevel
from tambomq.store.durability.support import find_wait, support_calls
from tambomq.store.durability.waits import Wait
from tambomq.store.roundtrip import RoundTrip
from tambomq.store.sync import Store

T = TypeVar("T")


class DurableStore(Store):
    """Runs calls that are done once they are durable; `NotDurable` if that is not confirmed.

    Calls without keys, and those that fail, wait for nothing.
    """

    def __init__(self, store: Store, durability: Durability) -> None:
        """Use the server of *store*, over connections of its own."""
        super().__init__(patient(store.endpoint, durability), patience_s=store.patience_s)
        self._durability = durability
        self._wait: Wait | None = None

    def run(self, call: Call[T]) -> T:
        """Run *call* and return its decoded reply."""
        result: T = self._confirmed((call,)).only()
        return result

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Run *calls* in one round trip; return a reply or an error for each."""
        return self._confirmed(calls).merged()

    def follow(self, plan: Plan[T]) -> T:
        """Make the round trips of *plan* and return its result; each that has keys waits."""
        outcomes: list[Outcome] | None = None
        confirmation = PlanConfirmation()
        try:
            while True:
                calls = plan.send(outcomes)  # type: ignore[arg-type]
                outcomes = confirmation.add(self._confirmed(list(calls)))
        except BatchIncomplete as error:
            confirmation.partial(error)
            raise
        except StopIteration as end:
            result: T = confirmation.result(end.value)
            return result

    def check(self) -> None:
        """Raise `DurabilityUnsupported` if the server cannot confirm the level."""
        self._found_wait()

    def _found_wait(self) -> Wait:
        wait = self._wait
        if wait is None:
            found = self._complete(RoundTrip(support_calls(self._durability)))
            self._wait = wait = find_wait(self._durability, found)
        return wait

    def _confirmed(self, calls: Sequence[Call[Any]]) -> CallConfirmation:
        round_trip = DurableRoundTrip(calls, self._found_wait())
        outcomes = self._complete(round_trip)
        if round_trip.unconfirmed:
            # Maybe by another server, or with another policy: look again before the next call.
            self._wait = None
        return CallConfirmation(outcomes, round_trip.unconfirmed)


def stores(plain: Store, level: str, timeout_s: float = TIMEOUT_S) -> StoresByLevel[Store]:
    """Return the stores of a blocking client whose default is *level*; see `durability`."""
    return StoresByLevel[Store](plain, DurableStore, level, timeout_s)
