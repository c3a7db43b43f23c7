"""HTTP clients that send no request or read no answer do not block others."""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tambomq.serve.health import ProcessHealth
from tambomq.serve.http import HttpComponent
from tambomq.serve.http_limits import LIMITS, HttpLimits
from tambomq.settings.load import HttpSettings
from tests.serve import processes
from tests.serve.components import opened
from tests.servers.tls import certificate

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ASK = b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n"
# Longer than any test takes.
NEVER_S = 600.0


@asynccontextmanager
async def http(limits: HttpLimits) -> AsyncIterator[str]:
    health = ProcessHealth()
    health.serving()
    component = HttpComponent(HttpSettings(port=0), health, limits)
    async with opened(component):
        yield component.endpoints[0].address


async def connect(stack: AsyncExitStack, url: str) -> Streams:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stack.callback(writer.close)
    return reader, writer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server has closed the connection, whatever it says before."""
    async with asyncio.timeout(30):
        with suppress(ConnectionResetError):
            await reader.read()
    return True


async def is_ready(url: str) -> bool:
    return await asyncio.to_thread(processes.get, url + "/readyz") == (200, "ready\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /rea",
        b"GET /readyz HTTP/1.1\r\nHost: h\r\nX-Never: ",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=["nothing", "half a line", "half a header", "half a body"],
)
async def test_a_request_that_is_never_complete_ends_its_connection(sent: bytes) -> None:
    async with http(HttpLimits(headers_s=0.2)) as url, AsyncExitStack() as stack:
        reader, writer = await connect(stack, url)
        writer.write(sent)
        assert await is_closed(reader)


async def test_headers_that_drip_do_not_prolong_their_time() -> None:
    async with http(HttpLimits(headers_s=0.5)) as url, AsyncExitStack() as stack:
        reader, writer = await connect(stack, url)
        writer.write(ASK[:-2])
        closed = asyncio.ensure_future(is_closed(reader))
        while not closed.done():
            writer.write(b"x")
            with suppress(ConnectionError):
                await writer.drain()
            await asyncio.sleep(0.01)
        assert await closed


async def test_a_connection_that_is_kept_has_its_time_for_each_request() -> None:
    async with http(HttpLimits(headers_s=1.0)) as url, AsyncExitStack() as stack:
        reader, writer = await connect(stack, url)
        writer.write(ASK)
        assert await reader.readuntil(b"ready\n")
        # Begins the next one, which takes uvicorn's own limit for idle connections away.
        writer.write(b"G")
        assert await is_closed(reader)


async def test_requests_that_come_together_are_all_answered() -> None:
    async with http(LIMITS) as url, AsyncExitStack() as stack:
        reader, writer = await connect(stack, url)
        writer.write(ASK * 5)
        for _ in range(5):
            assert await reader.readuntil(b"ready\n")


async def test_an_answer_that_is_not_taken_in_time_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look(self: ProcessHealth) -> dict[str, object]:
        del self
        await asyncio.sleep(NEVER_S)
        return {}

    monkeypatch.setattr(ProcessHealth, "look", look)
    limits = HttpLimits(headers_s=NEVER_S, answer_s=0.2)
    async with http(limits) as url, AsyncExitStack() as stack:
        reader, writer = await connect(stack, url)
        writer.write(ASK.replace(b"readyz", b"healthz"))
        assert await is_closed(reader)


async def test_a_new_connection_replaces_the_longest_idle_one() -> None:
    limits = HttpLimits(headers_s=NEVER_S, max_connections=3)
    async with http(limits) as url, AsyncExitStack() as stack:
        used, writer = await connect(stack, url)
        silent = [(await connect(stack, url))[0] for _ in range(2)]
        # The oldest connection is no longer the one that waits longest.
        writer.write(ASK)
        assert await used.readuntil(b"ready\n")
        for reader in silent:
            await connect(stack, url)
            assert await is_closed(reader)
        writer.write(ASK)
        assert await used.readuntil(b"ready\n")


@pytest.mark.parametrize(
    ("count", "limits"),
    [
        (120, HttpLimits(headers_s=NEVER_S, max_connections=50)),
        pytest.param(2_000, HttpLimits(headers_s=NEVER_S), marks=pytest.mark.slow),
    ],
)
async def test_health_answers_however_many_connections_are_silent(
    count: int, limits: HttpLimits
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        async with http(limits) as url, AsyncExitStack() as stack:
            for number in range(count):
                await connect(stack, url)
                if number % 50 == 0:
                    assert await is_ready(url)
            assert await is_ready(url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_handshakes_that_do_not_end_are_bounded_in_number_and_time(tmp_path: Path) -> None:
    made, health = certificate(tmp_path), ProcessHealth()
    health.serving()
    settings = HttpSettings(port=0, tls_cert=made.cert, tls_key=made.key)
    limits = HttpLimits(headers_s=2.0, max_connections=3)
    trusting = ssl.create_default_context(cafile=str(made.cert))
    async with AsyncExitStack() as stack:
        component = HttpComponent(settings, health, limits)
        await stack.enter_async_context(opened(component))
        address = component.endpoints[0].address.removeprefix("https://")
        silent = [await connect(stack, address) for _ in range(3)]
        for _, writer in silent:
            writer.write(b"\x16\x03\x01")
        refused, _ = await connect(stack, address)
        assert await is_closed(refused)
        # The others are closed when their time is over, and then there is room.
        for reader, _ in silent:
            assert await is_closed(reader)
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        stack.callback(writer.close)
        writer.write(ASK)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
