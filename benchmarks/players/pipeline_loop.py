"""The loop that moves a queue without the pipeline: receive, add, delete."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from benchmarks.players.talk import play, rate
from tambomq.chasqui import BlockingQueue
from tambomq.rsmq import Rsmq


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """What is measured here."""
    return {"version": f"TamboMQ {version('tambomq')}, one message after the other"}


def migrate(order: Mapping[str, Any]) -> dict[str, float]:
    """Move all messages of a queue."""
    with Rsmq(order["url"]) as rsmq, BlockingQueue(order["queue"], redis_url=order["url"]) as jobs:

        def one() -> None:
            message = rsmq.receive_message(order["queue"])
            if message is None:
                raise RuntimeError("there are too few messages")
            jobs.add("", message.text)
            rsmq.delete_message(order["queue"], message.id)

        return rate(one, order["count"] * 9 // 10, order["count"] // 10)


if __name__ == "__main__":
    play({"about": about, "migrate": migrate})
