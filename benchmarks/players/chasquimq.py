"""The engine's own Python package. Runs in the environment of tests/peers/chasquimq.

Every option it is not asked about keeps its default: ``read_count`` 64, a pool of 8 connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from chasquimq import Queue, Worker  # type: ignore[import-not-found]

from benchmarks.players.chasqui_tasks import Chasqui
from benchmarks.players.talk import play


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """What is measured here."""
    return {"version": f"chasquimq {version('chasquimq')} (uvloop {version('uvloop')})"}


if __name__ == "__main__":
    play({"about": about, **Chasqui(Queue, Worker).tasks})
