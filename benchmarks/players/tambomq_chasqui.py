"""TamboMQ's ChasquiMQ, measured with the same options as the engine's own package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks.players.chasqui_tasks import Chasqui
from benchmarks.players.talk import Task, play
from tambomq.chasqui import Queue, Worker


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    python = ".".join(map(str, sys.version_info[:3]))
    loop = f"uvloop {version('uvloop')}"
    return {"version": f"TamboMQ {version('tambomq')} (Python {python}, {loop})"}


def filled_elsewhere(task: Task) -> Task:
    """Fill the queue from another process: memory that it frees would hide what *task* takes."""

    def fill_and_do(order: Mapping[str, Any]) -> Mapping[str, Any]:
        command = [sys.executable, "-m", "benchmarks.players.tambomq_chasqui"]
        fill = json.dumps({**order, "task": "fill"})
        done = subprocess.run(command, input=fill, stdout=subprocess.PIPE, text=True, check=True)
        if "error" in (reply := json.loads(done.stdout)):
            raise RuntimeError(reply["error"])
        return task(order)

    return fill_and_do


if __name__ == "__main__":
    tasks = Chasqui(Queue, Worker).tasks
    play({"about": about, **tasks, "memory": filled_elsewhere(tasks["memory"])})
