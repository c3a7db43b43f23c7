"""Which batches a client is handling, and when its server must hear that it still does.

A peer that says nothing for `peer_timeout_s` is disconnected, and its batch given to others. Who
needs longer than that for a batch is not silent: the client says so by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tambomq.gomq.model import PEER_TIMEOUT_S

# A word may be lost, and so may the next.
_WORDS: Final = 3
_LEAST_S: Final = 0.05
# On a machine that is busy with other work a healthy server may take a few tenths of a second.
_LEAST_PATIENCE_S: Final = 0.5
_MOST_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class Holding:
    """The batches of one client, by consumer; times are seconds of any clock that only goes on."""

    _due: dict[str, tuple[float, float]] = field(default_factory=dict)

    def heard(self, consumer: str, batch: str, timeout_s: float | None, now: float) -> bool:
        """Note that the server has heard of us and what we have then; whether that is a batch.

        *timeout_s* is what it takes for silence; `None` if it did not say.
        """
        if not batch:
            self._due.pop(consumer, None)
            return False
        every_s = max(_LEAST_S, (timeout_s or PEER_TIMEOUT_S) / _WORDS)
        self._due[consumer] = (now + every_s, every_s)
        return True

    def due(self, now: float) -> list[str]:
        """Return the consumers for which the server must hear of us now; each but once."""
        found = []
        for consumer, (at, every_s) in list(self._due.items()):
            if at <= now and consumer in self._due:
                self._due[consumer] = (now + every_s, every_s)
                found.append(consumer)
        return found

    def patience_s(self, consumer: str) -> float:
        """Return how long to wait for an answer before it is said on another connection.

        Half the time to the next word, so that one which has gone silent makes none late.
        """
        every_s = self._due.get(consumer, (0.0, 0.0))[1]
        return min(max(every_s / 2, _LEAST_PATIENCE_S), _MOST_PATIENCE_S)

    def pause_s(self, now: float) -> float | None:
        """Return how long there is time for that; `None` if nothing is being handled."""
        return min((max(0.0, at - now) for at, _ in list(self._due.values())), default=None)

    def drop(self, consumer: str) -> None:
        """Forget the batch of *consumer*: nobody handles it any more."""
        self._due.pop(consumer, None)

    def clear(self) -> None:
        """Forget all: let the server take us for silent."""
        self._due.clear()
