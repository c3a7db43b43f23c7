from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tambomq.errors import SettingsError
from tambomq.work.supervisor import status_server
from tambomq.work.supervisor.status_server import StatusReply, StatusServer
from tests.servers.ports import free_port


@pytest.fixture
async def port() -> AsyncIterator[int]:
    port = free_port()
    server = StatusServer("127.0.0.1", port, {"/healthz": lambda: StatusReply(503, "ill\n")})
    await server.start()
    yield port
    server.close()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /healthz HTTP/1.1", b"503 Service Unavailable", b"ill\n"),
        (b"GET /healthz?verbose=1 HTTP/1.0", b"503 Service Unavailable", b"ill\n"),
        (b"HEAD /healthz HTTP/1.1", b"503 Service Unavailable", b""),
        (b"GET /nothing HTTP/1.1", b"404 Not Found", b"/healthz\n"),
        (b"POST /healthz HTTP/1.1", b"405 Method Not Allowed", b"GET or HEAD\n"),
        (b"GET /healthz", b"400 Bad Request", b"not an HTTP request\n"),
        (b"\xff\x00", b"400 Bad Request", b"not an HTTP request\n"),
    ],
)
async def test_a_request_gets_its_page(
    request_line: bytes, status: bytes, body: bytes, port: int
) -> None:
    head, _, sent = (await ask(port, request_line + b"\r\nHost: a\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert sent == body


async def test_a_client_that_sends_too_much_or_nothing_is_cut_off(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await ask(port, b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 100_000) == b""
    monkeypatch.setattr(status_server, "TIMEOUT_S", 0.05)
    assert await ask(port, b"GET /heal") == b""


async def test_a_taken_port_is_one_line(port: int) -> None:
    with pytest.raises(SettingsError, match=f"--http-port {port}: cannot listen on"):
        await StatusServer("127.0.0.1", port, {}).start()
