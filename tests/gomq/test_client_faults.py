"""Clients whose server is unreachable, slow, old or refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from tambomq.errors import BrokerRefused, BrokerUnavailable, StoreFull
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.model import Options
from tests.gomq.fakes import KINDS, FakeService, Served, connected, serving
from tests.servers import eventually, eventually_async
from tests.servers.ports import free_port


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which client: the blocking one, then the asyncio one."""
    return str(request.param)


@pytest.fixture
def service() -> FakeService:
    """What answers behind `served`."""
    return FakeService()


@pytest.fixture
def served(service: FakeService) -> Iterator[Served]:
    """A server in front of `service`."""
    with serving(service=service) as running:
        yield running


@pytest.fixture
def unused_address() -> str:
    """An address without a listener."""
    return f"127.0.0.1:{free_port()}"


def test_a_server_that_is_not_there_is_unavailable(kind: str, unused_address: str) -> None:
    with connected(kind, unused_address) as client:
        for call in (lambda: client.publish("k", "x"), lambda: list(client.watch("c"))):
            with pytest.raises(BrokerUnavailable, match="refused") as caught:
                call()
            assert caught.value.address == unused_address


def test_a_host_that_is_not_known_is_unavailable(kind: str) -> None:
    with (
        connected(kind, "no-such-host.invalid:10001", timeout_s=5) as client,
        pytest.raises(BrokerUnavailable),
    ):
        client.publish("k", "x")


def test_with_patience_a_server_that_comes_is_waited_for(kind: str, service: FakeService) -> None:
    port = free_port()
    with connected(kind, f"127.0.0.1:{port}", patience_s=20) as client:
        thread = Thread(target=lambda: client.publish("k", "x"))
        thread.start()
        with serving(service=service, port=port):
            eventually(lambda: service.requests, within_s=20)
            thread.join(60)


def test_patience_has_an_end(kind: str, unused_address: str) -> None:
    with (
        connected(kind, unused_address, timeout_s=0.1, patience_s=0.1) as client,
        pytest.raises(BrokerUnavailable, match="no answer to Publish in time"),
    ):
        client.publish("k", "x")


def test_a_server_that_does_not_answer_is_unavailable(
    kind: str, served: Served, service: FakeService
) -> None:
    service.hang = True
    with connected(kind, served.address, timeout_s=0.2) as client:
        with pytest.raises(BrokerUnavailable, match="no answer to Publish in time"):
            client.publish("k", "x")
        eventually(lambda: service.cancelled == 1)
        assert len(service.requests) == 1


def test_a_client_reconnects_to_a_restarted_server(kind: str, served: Served) -> None:
    with connected(kind, served.address, patience_s=20) as client:
        client.publish("k", "x")
        served.run(served.server.stop(0))
        served.run(served.server.start())
        client.publish("k", "x")


def test_a_closed_client_reconnects_at_the_next_call(
    kind: str, served: Served, service: FakeService
) -> None:
    with connected(kind, served.address) as client:
        client.publish("k", "x")
        client.close()
        client.close()
        client.publish("k", "x")
    assert len({caller.peer for _, caller in service.requests}) == 1


def test_a_call_that_closing_cuts_off_raises(
    kind: str, served: Served, service: FakeService
) -> None:
    service.hang = True
    caught: list[Exception] = []
    with connected(kind, served.address) as client:

        def publish() -> None:
            try:
                client.publish("k", "x")
            except BrokerUnavailable as error:
                caught.append(error)

        thread = Thread(target=publish)
        thread.start()
        eventually(lambda: service.requests)
        client.close()
        thread.join(60)
    (error,) = caught
    assert "closed" in str(error)


def test_another_status_is_a_refusal_with_its_name(
    kind: str, served: Served, service: FakeService
) -> None:
    service.error = StoreFull("out of memory")
    with connected(kind, served.address) as client:
        with pytest.raises(BrokerRefused) as caught:
            client.publish("k", "x")
        assert (caught.value.call, caught.value.status) == ("Publish", "RESOURCE_EXHAUSTED")
        assert caught.value.details == "out of memory"


def test_a_code_that_is_not_zero_is_a_refusal(
    kind: str, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> pb.Result:
        return pb.Result(code=-1)

    monkeypatch.setattr(service, "publish", fail)
    with (
        serving(service=service) as served,
        connected(kind, served.address) as client,
        pytest.raises(BrokerRefused, match="code -1"),
    ):
        client.publish("k", "x")


def test_a_message_above_the_limit_is_refused_by_the_server(
    kind: str, service: FakeService
) -> None:
    with (
        serving(service=service, options=Options(max_message_bytes=1 << 16)) as served,
        connected(kind, served.address) as client,
    ):
        with pytest.raises(BrokerRefused) as caught:
            client.publish("k", b"x" * (1 << 16))
        assert caught.value.status == "RESOURCE_EXHAUSTED"
        client.publish("k", "x")


def test_a_reply_of_any_size_is_taken(kind: str, served: Served, service: FakeService) -> None:
    big = pb.Record(key="k", value=pb.Message(id="i", payload=b"x" * (5 << 20)))
    service.batches = [pb.RecordSet(records=[big])]
    with connected(kind, served.address) as client:
        (record,) = client.observe("c")
        assert record.payload == big.value.payload


def test_calls_carry_the_peer_and_observations_the_acknowledged_batch(
    kind: str, served: Served, service: FakeService
) -> None:
    service.batches = [pb.RecordSet(records=[pb.Record(key="k")]) for _ in range(2)]
    with connected(kind, served.address, peer="me") as client:
        client.publish("k", "x")
        client.observe("c")
        client.observe("d")
        client.observe("c")
        client.observe("c")
        client.unsubscribe("k", "d")
    acks = [(caller.peer, caller.ack) for _, caller in service.requests]
    # An empty reply leaves nothing to acknowledge: not even closing does.
    assert acks == [("me", ack) for ack in (None, "", "", "batch-2", "", "batch-3")]


async def test_a_cancelled_call_is_cancelled_and_nothing_else(
    served: Served, service: FakeService
) -> None:
    async with AsyncGomqClient(served.address) as client:
        service.hang = True
        task = asyncio.ensure_future(client.publish("k", "x"))
        await eventually_async(lambda: service.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually_async(lambda: service.cancelled == 1)
        service.hang = False
        await client.publish("k", "x")


def test_an_asyncio_client_may_be_used_in_one_loop_after_another(
    served: Served, service: FakeService
) -> None:
    client = AsyncGomqClient(served.address)
    for _ in range(3):
        asyncio.run(client.publish("k", "x"))
    asyncio.run(client.close())
    assert len(service.requests) == 3
