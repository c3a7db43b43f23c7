"""Types for state tables: states, and the transitions between them.

Each protocol describes its messages in a `states` module. `scripts/state-diagrams` draws
docs/states.md from these tables, and tests compare them with the scripts that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEW = ""
"""The source of a transition that creates, and the target of one that leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One arrow of a state diagram.

    *by* names what makes the transition: Lua scripts, as paths below ``src/tambomq`` without
    ``scripts/`` and ``.lua``, and Redis commands in capitals. Empty means that time alone does.
    """

    source: str
    target: str
    cause: str
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateTable:
    """The states of one kind of thing, with their meaning, and all transitions."""

    title: str
    states: Mapping[str, str]
    transitions: tuple[Transition, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` for a transition from or to a state that is not in the table."""
        known = {*self.states, NEW}
        for each in self.transitions:
            if unknown := {each.source, each.target} - known:
                raise ValueError(f"{self.title}: no such state: {unknown.pop()!r}")
