"""Calls that are refused before anything is sent, by the type of the error."""
# ruff: noqa: T201  (what it prints is compared; it waits as short programs do)

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from chasquimq import (  # type: ignore[import-not-found]
    BackoffSpec,
    MissedFiresPolicy,
    Queue,
    RepeatPattern,
    UnrecoverableError,
)

URL = sys.argv[1]


async def main() -> None:
    async with Queue("refusals", redis_url=URL) as queue:
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "negative delay": lambda: queue.add("n", 1, delay_ms=-1),
            "negative timedelta": lambda: queue.add("n", 1, delay=timedelta(seconds=-1)),
            "both delays": lambda: queue.add("n", 1, delay_ms=1, delay=timedelta(1)),
            "blank id": lambda: queue.add("n", 1, job_id="  "),
            "empty id": lambda: queue.add_unique("n", 1, job_id=""),
            "no id": lambda: queue.add_unique("n", 1, job_id=None),
            "unknown backoff": lambda: queue.add("n", 1, backoff={"kind": "odd", "delay_ms": 1}),
            "no interval": lambda: queue.add("n", 1, repeat=RepeatPattern.every(0)),
            "unknown repeat": lambda: queue.add("n", 1, repeat={"kind": "odd"}),
            "missed fires of nothing": lambda: queue.add(
                "n", 1, missed_fires=MissedFiresPolicy.skip()
            ),
        }
        for what, call in calls.items():
            try:
                await call()
            except ValueError:
                print(what, "is refused")
            else:
                print(what, "is taken")
        print(await queue.add_bulk([]), await queue.peek_dlq(), await queue.replay_dlq())
    try:
        MissedFiresPolicy.fire_all(0)
    except ValueError:
        print("no catching up is refused")
    print(issubclass(UnrecoverableError, RuntimeError))
    print(BackoffSpec.fixed(5).to_dict())
    print(BackoffSpec.exponential(5, max_ms=50, jitter_ms=2).to_dict())
    print(BackoffSpec.fixed(5) == BackoffSpec.fixed(5, jitter_ms=None))


asyncio.run(main())
