"""Hypothesis profiles by number of examples: ``--hypothesis-profile=ci``, ``thorough``, ``quick``.

No profile has a deadline: a busy machine is not a mistake.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_EXAMPLES: Final = {"quick": 25, "ci": 100, "thorough": 1000}
_PROGRAMS: Final = {"quick": 25, "ci": 1000, "thorough": 10_000}


def register() -> None:
    """Register the profiles, and load the quick one unless pytest gets another."""
    for name, examples in _EXAMPLES.items():
        settings.register_profile(name, max_examples=examples, deadline=None, print_blob=True)
    settings.load_profile("quick")


def programs(share: float = 1.0) -> int:
    """How many programs a state machine runs, or the *share* of one whose steps take long."""
    return max(1, round(_PROGRAMS[settings.get_current_profile_name()] * share))
