"""A client of a console in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.console.http.memory import MemoryConsole

BASE = "http://127.0.0.1:8090"


class Browser(httpx.AsyncClient):
    """A client of one console, which sends the session's secret with each POST."""

    memory: MemoryConsole
    csrf = ""

    async def act(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """Send a POST as a page of the console does."""
        if not self.csrf:
            self.csrf = (await self.get("/api/v1/session")).json()["csrf"]
        headers = {"X-Tambo-CSRF": self.csrf, **options.pop("headers", {})}
        return await self.post(f"/api/v1{path}", json=json or {}, headers=headers, **options)

    async def log_in(self, token: str) -> httpx.Response:
        """Log in, and keep the secret."""
        reply = await self.post("/api/v1/login", json={"token": token})
        self.csrf = reply.json().get("csrf", "")
        return reply


Open = Callable[..., Awaitable[Browser]]


@pytest.fixture
async def browse() -> AsyncIterator[Open]:
    """Open a console with some options; return its client."""
    async with AsyncExitStack() as stack:

        async def open_one(base: str = BASE, **options: Any) -> Browser:
            memory = MemoryConsole(**options)
            memory.open()
            stack.push_async_callback(memory.console.close)
            transport = httpx.ASGITransport(memory.app, client=("127.0.0.1", 5000))
            browser = Browser(transport=transport, base_url=base)
            browser.memory = memory
            return await stack.enter_async_context(browser)

        yield open_one
