"""Connections of clients: unreachable and restarted servers, timeouts, and TLS."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tambomq.errors import BrokerUnavailable, InvalidValue, SettingsError
from tambomq.kqueue import AsyncConsumer, AsyncProducer, KqueueServer, Message
from tambomq.store.endpoint import Tls
from tambomq.tls import ServerTls
from tests.kqueue.serving import Served
from tests.kqueue.twins import consuming, has_subscriptions, producing, silent_server
from tests.servers.ports import free_port
from tests.servers.tls import certificate


@pytest.fixture
def served() -> Iterator[Served]:
    with Served("asyncio") as server:
        yield server


# ── unreachable servers ──────────────────────────────────────────────────────


def test_without_a_server_every_call_raises(kind: str) -> None:
    port = free_port()
    with consuming(kind, port) as consumer, producing(kind, port) as producer:
        for call in (
            lambda: producer.send("a", "1"),
            lambda: producer.send_many([("a", "1")]),
            lambda: consumer.subscribe("a"),
            lambda: consumer.receive(1),
        ):
            with pytest.raises(BrokerUnavailable, match=rf"127\.0\.0\.1:{port}"):
                call()


def test_with_patience_an_unreachable_server_is_retried(kind: str) -> None:
    with Served("asyncio") as served:
        served.run(served.server.stop())
        served.server._port = served.port
        tried = threading.Timer(0.1, lambda: served.run(served.server.start()))
        with (
            consuming(kind, served.port, patience_s=60) as consumer,
            producing(kind, served.port, patience_s=60) as producer,
        ):
            tried.start()
            consumer.subscribe("a")
            has_subscriptions(served, 1)
            producer.send("a", "1")
            assert consumer.receive(60) == Message(b"a", b"1")
        tried.join()


@pytest.mark.parametrize("patience_s", [-1, float("nan"), True, "1"])
def test_an_illegal_patience_is_refused(kind: str, patience_s: Any) -> None:
    for make in (consuming, producing):
        with pytest.raises(InvalidValue, match="patience_s"), make(kind, 1, patience_s=patience_s):
            pass


def test_a_consumer_that_reconnects_restores_its_subscriptions(kind: str) -> None:
    with Served("asyncio") as served, consuming(kind, served.port) as consumer:
        consumer.subscribe("a", "b", "c")
        consumer.unsubscribe("b")
        consumer.subscribe_all()
        consumer.unsubscribe_all()
        consumer.subscribe("c", "d")
        has_subscriptions(served, 2)
        served.run(served.server.stop())
        with pytest.raises(BrokerUnavailable):
            consumer.receive(5)
        served.server._port = served.port
        served.run(served.server.start())
        assert consumer.receive(0) is None
        has_subscriptions(served, 2)
        with producing(kind, served.port) as producer:
            producer.send_many([("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")])
            assert [consumer.receive(5).text for _ in range(2)] == ["3", "4"]  # type: ignore[union-attr]  # (or it fails)


def test_a_producer_reconnects_after_its_server_was_stopped(kind: str) -> None:
    with Served("asyncio") as served, producing(kind, served.port) as producer:
        producer.send("a", "1")
        served.comes_to(lambda stats: stats.received == 1)
        served.run(served.server.stop())
        served.server._port = served.port
        served.run(served.server.start())
        with pytest.raises(BrokerUnavailable):
            # The first send raises, unless the close has not arrived yet.
            producer.send_many(("a", b"x" * 1000) for _ in range(100_000))
        producer.send("a", "2")
        served.comes_to(lambda stats: stats.received == 2)


def test_received_messages_are_returned_before_the_lost_connection_raises(
    served: Served, kind: str, producer: Any
) -> None:
    with consuming(kind, served.port) as consumer:
        consumer.subscribe("a")
        has_subscriptions(served, 1)
        producer.send_many([("a", "1"), ("a", "2")])
        served.comes_to(lambda stats: stats.delivered == 2)
        served.run(served.server.stop())
        assert [consumer.receive(5).text for _ in range(2)] == ["1", "2"]  # type: ignore[union-attr]  # (or it fails)
        with pytest.raises(BrokerUnavailable):
            consumer.receive(5)


def test_a_server_that_does_not_read_times_out(kind: str) -> None:
    with (
        silent_server() as (_, port),
        producing(kind, port, timeout_s=0.3) as producer,
        pytest.raises(BrokerUnavailable, match=r"no data was accepted for 0\.3 s"),
    ):
        producer.send_many(("a", b"x" * 100_000) for _ in range(1000))


def test_a_closed_client_reconnects_when_it_is_used_again(
    served: Served, producer: Any, consumer: Any
) -> None:
    consumer.subscribe("a")
    consumer.close()
    producer.send("a", "lost")
    producer.close()
    producer.close()
    has_subscriptions(served, 0)
    assert consumer.receive(0) is None
    has_subscriptions(served, 1)
    producer.send("a", "1")
    assert consumer.receive(5) == Message(b"a", b"1")


# ── TLS and asyncio ──────────────────────────────────────────────────────────


def test_clients_speak_tls(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    ours = certificate(tmp_path_factory.mktemp("ours"))
    theirs = certificate(tmp_path_factory.mktemp("theirs"))
    tls = Tls(ca=str(ours.cert), cert=str(theirs.cert), key=str(theirs.key))
    settings = ServerTls(ours.cert, ours.key, client_ca=theirs.cert)
    with (
        Served("uvloop", tls=settings, slow="block") as served,
        consuming(kind, served.port, tls=tls) as consumer,
        producing(kind, served.port, tls=tls) as producer,
    ):
        consumer.subscribe("a")
        has_subscriptions(served, 1)
        sending = threading.Thread(target=producer.send_many, args=([("a", b"x" * 500_000)] * 5,))
        sending.start()
        assert [len(consumer.receive(20).body) for _ in range(5)] == [500_000] * 5  # type: ignore[union-attr]  # (or it fails)
        sending.join()
        with (
            producing(kind, served.port, tls=Tls(ca=str(theirs.cert))) as distrustful,
            pytest.raises(BrokerUnavailable, match="certificate"),
        ):
            distrustful.send("a", "1")
        with (
            producing(kind, served.port, tls=Tls(ca="missing.pem")) as mistaken,
            pytest.raises(SettingsError, match=r"missing\.pem"),
        ):
            mistaken.send("a", "1")


async def test_a_waiting_consumer_does_not_block_other_tasks() -> None:
    async with (
        KqueueServer(port=0) as server,
        AsyncConsumer(port=server.address[1]) as consumer,
        AsyncProducer(port=server.address[1]) as producer,
    ):
        await consumer.subscribe("a")
        while not server.stats.subscriptions:
            assert await consumer.receive(0.01) is None
        assert await producer.send_many(("a", str(number)) for number in range(10)) == 10
        found = []
        async for each in consumer:
            found.append(each.text)
            if len(found) == 10:
                break
        assert found == [str(number) for number in range(10)]


def test_the_blocking_clients_do_not_import_asyncio() -> None:
    program = "import sys, tambomq.kqueue; sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
