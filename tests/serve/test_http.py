from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator

import pytest

from tambomq.errors import ComponentFailed
from tambomq.serve.health import ProcessHealth
from tambomq.serve.http import HttpComponent
from tambomq.settings.load import HttpSettings
from tests.serve import processes
from tests.serve.components import Recorded, opened


@pytest.fixture
def health() -> ProcessHealth:
    """Of a process that has begun to open its components."""
    health = ProcessHealth()
    health.expect([Recorded("a")])
    return health


@pytest.fixture
async def url(health: ProcessHealth) -> AsyncIterator[str]:
    component = HttpComponent(HttpSettings(port=0), health)
    async with opened(component):
        yield component.endpoints[0].address


async def get(url: str) -> tuple[int, str]:
    return await asyncio.to_thread(processes.get, url)


async def test_the_index_names_every_page(url: str) -> None:
    code, text = await get(url + "/")
    assert code == 200
    for path in ("/healthz", "/readyz", "/metrics", "/stats"):
        assert path in text
        assert (await get(url + path))[0] in (200, 503)


async def test_an_unknown_page_is_not_found(url: str) -> None:
    assert (await get(url + "/nothing"))[0] == 404


async def test_other_methods_are_not_allowed(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
    writer.close()


async def answer_to(url: str, path: str, host: str) -> bytes:
    """The first line of the reply to a request under the name *host*."""
    at, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(at, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    reply = await reader.read()
    writer.close()
    return reply.partition(b"\r\n")[0]


async def test_a_page_of_another_site_reads_no_names_of_queues(
    health: ProcessHealth, url: str
) -> None:
    # Its name was resolved to this machine: only Host shows it.
    for path in ("/metrics", "/stats", "/endpoints"):
        assert (await answer_to(url, path, "evil.example:8090")).startswith(b"HTTP/1.1 403 ")
        assert (await answer_to(url, path, "localhost:8090")).startswith(b"HTTP/1.1 200 ")
    # Probes may come by any name, and learn nothing of queues.
    assert (await answer_to(url, "/healthz", "tambo")).startswith(b"HTTP/1.1 503 ")
    settings = HttpSettings(port=0, allowed_host=("metrics.example",))
    allowing = HttpComponent(settings, health)
    async with opened(allowing):
        at = allowing.endpoints[0].address
        assert (await answer_to(at, "/metrics", "metrics.example")).startswith(b"HTTP/1.1 200 ")


async def test_beyond_loopback_any_name_is_answered(health: ProcessHealth) -> None:
    component = HttpComponent(HttpSettings(host="0.0.0.0", port=0), health)
    async with opened(component):
        at = component.endpoints[0].address.replace("0.0.0.0", "127.0.0.1")
        assert (await answer_to(at, "/metrics", "tambo:8090")).startswith(b"HTTP/1.1 200 ")


async def test_garbage_is_refused_without_harm_to_others(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\x00\xff\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert (await get(url + "/"))[0] == 200


async def test_health_follows_the_components(url: str, health: ProcessHealth) -> None:
    code, text = await get(url + "/healthz")
    assert code == 503
    assert json.loads(text) == {"a": {"ok": False, "why": "is not started yet", "degraded": False}}
    health.started(Recorded("a"))
    code, text = await get(url + "/healthz")
    assert (code, json.loads(text)) == (200, {"a": {"ok": True, "why": "", "degraded": False}})


async def test_readiness_follows_the_process(url: str, health: ProcessHealth) -> None:
    assert (await get(url + "/readyz"))[0] == 503
    health.serving()
    assert await get(url + "/readyz") == (200, "ready\n")
    health.stopping()
    assert (await get(url + "/readyz"))[0] == 503


async def test_signals_are_left_to_the_process(health: ProcessHealth) -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    async with opened(HttpComponent(HttpSettings(port=0), health)):
        assert handlers() == before


async def test_a_taken_port_names_the_flags_that_help(health: ProcessHealth) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        component = HttpComponent(HttpSettings(port=port), health)
        with pytest.raises(ComponentFailed) as caught:
            await component.start()
        await component.stop()
    assert str(caught.value).startswith(f"http cannot be served: 127.0.0.1:{port} is taken")
    assert f"--http-port {port + 1}" in str(caught.value)
    assert "--no-http" in str(caught.value)


async def test_a_host_that_is_not_here_is_named(health: ProcessHealth) -> None:
    component = HttpComponent(HttpSettings(host="192.0.2.1", port=0), health)
    with pytest.raises(ComponentFailed, match=r"cannot listen on 192\.0\.2\.1:0: .*--http-host"):
        await component.start()
    await component.stop()


async def test_it_listens_on_ipv6_too(health: ProcessHealth) -> None:
    component = HttpComponent(HttpSettings(host="::1", port=0), health)
    async with opened(component):
        address = component.endpoints[0].address
        assert address.startswith("http://[::1]:")
        assert (await get(address + "/"))[0] == 200


async def test_an_idle_client_does_not_keep_it_open(health: ProcessHealth) -> None:
    component = HttpComponent(HttpSettings(port=0), health)
    await component.start()
    host, port = component.endpoints[0].address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await asyncio.wait_for(component.stop(), 60)
    await reader.read()
    writer.close()
