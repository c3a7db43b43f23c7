"""The API on a real server does what its description says, whatever is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Self

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tambomq.cli.console import console_components
from tambomq.console.http.openapi import openapi
from tambomq.rsmq import Rsmq
from tambomq.serve.health import ProcessHealth
from tambomq.settings import load
from tests.serve.components import opened
from tests.servers import Server, binaries

pytestmark = pytest.mark.slow

# Live updates never end, and the log-in has tests of its own.
schema = schemathesis.openapi.from_dict(openapi()).exclude(path="/api/v1/live")


class Served:
    """The console of a server, in a thread: its URL and the session's secret."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    @property
    def csrf(self) -> str:
        return str(httpx.get(f"{self.url}/api/v1/session").json()["csrf"])

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        flags = {"http_port": "0", "redis_url": self._redis_url}
        parts = console_components(load.load(env={}, flags=flags), ProcessHealth())
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(opened(part))
            self.url = parts[0].endpoints[0].address
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Server(binaries.valkey()) as server, Served(server.url) as served:
        with Rsmq(server.url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.send_message("orders", "hello")
        yield served


@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_api_keeps_to_its_description(case: schemathesis.Case[Any], served: Served) -> None:
    case.call_and_validate(
        base_url=served.url,
        headers={"X-Tambo-CSRF": served.csrf},
        # An id of the right form need not exist.
        excluded_checks=[positive_data_acceptance],
    )
