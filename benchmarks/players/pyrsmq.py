"""PyRSMQ, used as in its documentation. Runs in the environment of tests/peers/pyrsmq."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from rsmq import RedisSMQ  # type: ignore[import-not-found]

from benchmarks.players.talk import play, rate


@cache
def client(url: str) -> Any:
    """One client for all rounds."""
    place = urlsplit(url)
    return RedisSMQ(host=place.hostname, port=str(place.port or 6379))


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions measured."""
    return {"version": f"PyRSMQ {version('PyRSMQ')} (redis-py {version('redis')})"}


def send(order: Mapping[str, Any]) -> dict[str, float]:
    """Send messages one after the other."""
    rsmq, queue, body = client(order["url"]), order["queue"], order["body"]
    return rate(
        lambda: rsmq.sendMessage(qname=queue, message=body).execute(),
        order["count"],
        order["warm"],
    )


def receive(order: Mapping[str, Any]) -> dict[str, float]:
    """Receive a message and delete it, one after the other."""
    rsmq, queue = client(order["url"]), order["queue"]

    def take() -> None:
        message = rsmq.receiveMessage(qname=queue).execute()
        if not rsmq.deleteMessage(qname=queue, id=message["id"]).execute():
            raise RuntimeError("the message was gone")

    return rate(take, order["count"], order["warm"])


if __name__ == "__main__":
    play({"about": about, "send": send, "receive": receive})
