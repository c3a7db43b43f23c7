"""Queues of plain Redis commands: nothing is broken, and they lose messages all the same."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.build import Trial
from tests.chaos.nemeses import NEMESES
from tests.chaos.subjects.plain import LISTS, PUBSUB

_SECONDS: Final = 25.0
_PAUSE_S: Final = 2.0
"""Between two kills: a subscriber that has just started must have come to receive something."""

_KILL: Final = NEMESES["kill-worker"]

PLAIN: Final = {
    "a list with LPUSH and BRPOP": Trial(LISTS, _KILL, seconds=_SECONDS, pause_s=_PAUSE_S),
    "a channel with PUBLISH": Trial(PUBSUB, _KILL, seconds=_SECONDS, pause_s=_PAUSE_S),
}
