"""The protocol between harness and player: one JSON object in, one out. Standard library only.

Foreign environments import this file too, so it must not know TamboMQ.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Task: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def play(tasks: Mapping[str, Task]) -> None:
    """Do what is asked on stdin until it ends; the answer to ``{"task": name, …}`` is a line."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = dict(tasks[order["task"]](order))
        except Exception as error:  # noqa: BLE001  (the harness shows it, whatever it is)
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def rate(act: Callable[[], object], count: int, warm: int) -> dict[str, float]:
    """How often *act* is done in a second, after *warm* times that do not count."""
    for _ in range(warm):
        act()
    began = time.perf_counter()
    for _ in range(count):
        act()
    return {"rate": count / (time.perf_counter() - began)}
