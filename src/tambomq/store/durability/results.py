"""What durable calls return and raise: their outcomes, and why some are not confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from tambomq.errors import BatchIncomplete, NotDurable
from tambomq.store.call import Outcome, results
from tambomq.store.durability.level import Durability
from tambomq.store.endpoint import Endpoint

T = TypeVar("T")

_SPARE_S = 5.0


class CallConfirmation(NamedTuple):
    """The outcomes of calls as without a level of durability, and what is not confirmed."""

    outcomes: list[Outcome]
    unconfirmed: dict[int, NotDurable]
    """By index; only for calls that were done."""

    def merged(self) -> list[Outcome]:
        """Return the outcomes, `NotDurable` for those that are not confirmed."""
        if not self.unconfirmed:
            return self.outcomes
        return [
            self._error(index, outcome) if index in self.unconfirmed else outcome
            for index, outcome in enumerate(self.outcomes)
        ]

    def only(self) -> Any:
        """Return the result of the only call, or raise its error."""
        return results(self.merged())[0]

    def _error(self, index: int, outcome: Outcome) -> NotDurable:
        error = self.unconfirmed[index]
        error.result = outcome
        return error


class PlanConfirmation:
    """Whether all round trips of a plan were confirmed; the plan itself sees what it did."""

    def __init__(self) -> None:
        self._error: NotDurable | None = None

    def add(self, round_trip: CallConfirmation) -> list[Outcome]:
        """Return the outcomes of a round trip for the plan."""
        self._error = self._error or next(iter(round_trip.unconfirmed.values()), None)
        return round_trip.outcomes

    def result(self, result: T) -> T:
        """Return the result of the plan, or raise `NotDurable` with it."""
        if self._error is None:
            return result
        self._error.result = result
        raise self._error

    def partial(self, error: BatchIncomplete) -> None:
        """Raise `NotDurable` if what *error* says was done is not confirmed."""
        if self._error is not None:
            self._error.result = error.ids
            raise self._error from error


def patient(endpoint: Endpoint, durability: Durability) -> Endpoint:
    """Return *endpoint* with a reply timeout that is longer than the wait."""
    limit_s = max(endpoint.reply_timeout_s, durability.timeout_s + _SPARE_S)
    return replace(endpoint, reply_timeout_s=limit_s)
