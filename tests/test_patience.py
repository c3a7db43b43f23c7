"""The retry budget of every client is an option of one name: `patience_s`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tambomq.chasqui import BlockingQueue, Queue, QueueEvents, Worker
from tambomq.errors import InvalidValue, StoreUnavailable
from tambomq.gomq import AsyncGomqClient, GomqClient
from tambomq.rsmq import AsyncRsmq, Rsmq, RsmqWorker
from tambomq.store.endpoint import (
    CONNECT_TIMEOUT_S,
    REPLY_TIMEOUT_S,
    SHORTEST_REPLY_S,
    SHORTEST_TIMEOUT_S,
)

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}"


def handle(_: Any) -> None:
    pass


CLIENTS: dict[str, Callable[..., Any]] = {
    "Queue": lambda url, **options: Queue("q", redis_url=url, **options),
    "BlockingQueue": lambda url, **options: BlockingQueue("q", redis_url=url, **options),
    "QueueEvents": lambda url, **options: QueueEvents("q", redis_url=url, **options),
    "Worker": lambda url, **options: Worker("q", handle, redis_url=url, **options),
    "Rsmq": Rsmq,
    "AsyncRsmq": AsyncRsmq,
    "RsmqWorker": lambda url, **options: RsmqWorker("q", handle, url=url, **options),
    "GomqClient": lambda _, **options: GomqClient(**options),
    "AsyncGomqClient": lambda _, **options: AsyncGomqClient(**options),
}


@pytest.mark.parametrize("url", ["nowhere", "silent"])
@pytest.mark.parametrize("name", ["BlockingQueue", "Rsmq"])
def test_threads_wait_no_longer_than_their_retry_budget(name: str, url: str, silent: str) -> None:
    server = silent if url == "silent" else NOWHERE
    with CLIENTS[name](server, patience_s=0.05) as client, pytest.raises(StoreUnavailable):
        _ = client.add("n", 1) if name == "BlockingQueue" else client.list_queues()


@pytest.mark.parametrize("url", ["nowhere", "silent"])
@pytest.mark.parametrize("name", ["Queue", "AsyncRsmq"])
async def test_coroutines_wait_no_longer_than_their_retry_budget(
    name: str, url: str, silent: str
) -> None:
    server = silent if url == "silent" else NOWHERE
    async with CLIENTS[name](server, patience_s=0.05) as client:
        with pytest.raises(StoreUnavailable):
            await (client.add("n", 1) if name == "Queue" else client.list_queues())


async def test_listeners_wait_no_longer_than_their_retry_budget() -> None:
    with pytest.raises(StoreUnavailable):
        await QueueEvents("q", redis_url=NOWHERE, patience_s=0).open()


@pytest.mark.parametrize("name", ["Queue", "BlockingQueue", "Rsmq", "AsyncRsmq"])
def test_a_try_at_a_server_that_hangs_is_as_short_as_the_patience(name: str) -> None:
    make = CLIENTS[name]
    usual, less, none = (
        make(NOWHERE, **options)._store.endpoint
        for options in ({}, {"patience_s": 4}, {"patience_s": 0})
    )
    assert (usual.connect_timeout_s, usual.reply_timeout_s) == (CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S)
    assert (less.connect_timeout_s, less.reply_timeout_s) == (4, 4)
    assert (none.connect_timeout_s, none.reply_timeout_s) == (SHORTEST_TIMEOUT_S, SHORTEST_REPLY_S)


@pytest.mark.parametrize("patience_s", [-1, float("nan"), "1"])
@pytest.mark.parametrize("name", CLIENTS)
def test_an_invalid_patience_is_refused(name: str, patience_s: Any) -> None:
    with pytest.raises(InvalidValue, match="patience_s"):
        CLIENTS[name](NOWHERE, patience_s=patience_s)
