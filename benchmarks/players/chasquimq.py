"""The engine's own Python package, run in the environment of tests/peers/chasquimq.

Options that the order does not set keep their defaults: ``read_count`` 64, 8 connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from chasquimq import Queue, Worker  # type: ignore[import-not-found]

from benchmarks.players.chasqui_tasks import Chasqui
from benchmarks.players.talk import play


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    return {"version": f"chasquimq {version('chasquimq')} (uvloop {version('uvloop')})"}


if __name__ == "__main__":
    play({"about": about, **Chasqui(Queue, Worker).tasks})
