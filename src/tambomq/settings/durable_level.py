"""The type of settings that are a level of durability."""

from __future__ import annotations

import re
from typing import Final

from tambomq.settings.types import Text

_LEVEL: Final = re.compile(r"memory|disk|replicas:[1-9][0-9]?")


class DurableLevel(Text):
    """How durable a message is when its send is confirmed."""

    metavar = "LEVEL"

    def read(self, value: object) -> str:
        """Return the level."""
        text = super().read(value)
        if _LEVEL.fullmatch(text) is None:
            raise ValueError
        return text

    def __str__(self) -> str:
        return "memory, disk, or replicas:N with N from 1 to 99"
