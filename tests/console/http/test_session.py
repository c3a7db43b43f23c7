"""The session and live routes on a real HTTP server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tambomq.serve.health import ProcessHealth
from tambomq.serve.http import HttpComponent
from tambomq.serve.http_limits import HttpLimits
from tambomq.settings.load import HttpSettings
from tests.console.http.memory import MemoryConsole, overview
from tests.serve.components import opened
from tests.servers import eventually_async
from tests.servers.tls import certificate

Lines = AsyncIterator[str]


@asynccontextmanager
async def served(
    memory: MemoryConsole, limits: HttpLimits | None = None, **settings: Any
) -> AsyncIterator[tuple[HttpComponent, str]]:
    component = HttpComponent(
        HttpSettings(port=0, **settings),
        ProcessHealth(),
        limits or HttpLimits(),
        memory.console,
    )
    memory.open()
    async with opened(component):
        yield component, component.endpoints[0].address
        await memory.console.close()


async def next_overview(lines: Lines) -> str:
    async with asyncio.timeout(30):
        async for line in lines:
            if line.startswith("data: "):
                return line
    raise AssertionError("the stream has ended")


async def both_limits_have_passed(url: str) -> None:
    """Wait until the server has closed a connection that began later and sends nothing."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 30)
    writer.close()


async def test_a_stream_outlasts_the_time_of_other_answers() -> None:
    memory = MemoryConsole()
    limits = HttpLimits(headers_s=0.2, answer_s=0.2)
    async with served(memory, limits) as (_, url), httpx.AsyncClient() as client:
        async with client.stream("GET", f"{url}/api/v1/live") as reply:
            lines = reply.aiter_lines()
            await next_overview(lines)
            await both_limits_have_passed(url)
            memory.source.publish(overview(depth=77))
            assert '"depth":77' in await next_overview(lines)
        await eventually_async(lambda: memory.console.feed.viewers == 0)


async def test_a_viewer_that_reads_nothing_is_disconnected() -> None:
    memory = MemoryConsole()
    async with served(memory, HttpLimits(answer_s=0.3)) as (_, url):
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await eventually_async(lambda: memory.console.feed.viewers == 1)
        large = [overview().queues[0]] * 20_000

        def is_gone() -> bool:
            large.append(large[0])
            memory.source.publish(msgspec.structs.replace(overview(), queues=large))
            return memory.console.feed.viewers == 0

        await eventually_async(is_gone, within_s=20)
        writer.close()
        del reader


async def test_closing_the_console_ends_streams() -> None:
    memory = MemoryConsole()
    async with (
        served(memory) as (_, url),
        httpx.AsyncClient() as client,
        client.stream("GET", f"{url}/api/v1/live") as reply,
    ):
        lines = reply.aiter_lines()
        await next_overview(lines)
        await memory.console.close()
        async with asyncio.timeout(30):
            assert [line async for line in lines if line.startswith("data")] == []


async def test_the_end_of_a_session_ends_its_stream() -> None:
    memory = MemoryConsole(viewer_token="secret")
    async with served(memory) as (_, url), httpx.AsyncClient() as client:
        await client.post(f"{url}/api/v1/login", json={"token": "secret"})
        async with client.stream("GET", f"{url}/api/v1/live") as reply:
            lines = reply.aiter_lines()
            await next_overview(lines)
            memory.clock_s += 24 * 3600
            memory.source.publish(overview(depth=77))
            async with asyncio.timeout(30):
                assert [line async for line in lines if line.startswith("data")] == []


@pytest.mark.parametrize("path", ["/nothing", "/a%0Ab", "/api/v1/operations/%0A/undo", "/healthz2"])
async def test_every_other_path_is_the_consoles(path: str) -> None:
    async with served(MemoryConsole()) as (_, url), httpx.AsyncClient() as client:
        reply = await client.get(url + path)
    assert reply.status_code in (404, 405)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_health_needs_no_token_and_no_name() -> None:
    memory = MemoryConsole(operator_token="secret")
    async with served(memory) as (_, url), httpx.AsyncClient() as client:
        for path in ("/healthz", "/readyz", "/metrics", "/stats", "/endpoints"):
            reply = await client.get(url + path)
            assert reply.status_code in (200, 503), path
        for path in ("/healthz", "/readyz"):
            reply = await client.get(url + path, headers={"Host": "any.example"})
            assert reply.status_code in (200, 503), path
        assert (await client.get(f"{url}/api/v1/overview")).status_code == 401


async def test_with_a_certificate_only_tls_is_spoken(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    memory = MemoryConsole(operator_token="secret")
    files: dict[str, Any] = {"tls_cert": made.cert, "tls_key": made.key}
    async with served(memory, **files) as (_, url):
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=str(made.cert))
        ) as client:
            assert (await client.get(f"{url}/readyz")).status_code == 503
            reply = await client.post(f"{url}/api/v1/login", json={"token": "secret"})
            assert "secure" in reply.headers["set-cookie"].lower()
            assert (await client.get(f"{url}/api/v1/overview")).status_code == 200
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.HTTPError):
                await plain.get(url.replace("https", "http") + "/readyz")


async def test_behind_a_proxy_with_tls_the_cookie_is_secure_and_the_caller_known() -> None:
    memory = MemoryConsole(operator_token="secret", allowed_hosts=("queues.example.com",))
    headers = {
        "Host": "queues.example.com",
        "Origin": "https://queues.example.com",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-For": "192.0.2.7",
    }
    async with served(memory) as (_, url), httpx.AsyncClient(headers=headers) as client:
        reply = await client.post(f"{url}/api/v1/login", json={"token": "secret"})
        assert reply.status_code == 200
        assert reply.headers["set-cookie"].startswith("__Host-tambo_session_")
        assert memory.audit.kept[-1].address == "192.0.2.7"
