"""The gRPC server, mostly tested with a client of the bare protocol."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
import redis

from tambomq.errors import (
    BrokerRefused,
    BrokerUnavailable,
    InvalidFormat,
    MessageTooLong,
    StoreFull,
    StoreUnavailable,
    TamboError,
    WrongType,
)
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import ACK, BATCH, PEER
from tambomq.gomq.server.grpc_handlers import address_of
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.gomq.server.methods import METHODS, SERVICE
from tambomq.store.aio import AsyncStore
from tests.gomq.fakes import LOOPS, FakeService, Served, serving
from tests.servers import Server, eventually

Status = grpc.StatusCode
WITHIN_S = 60.0


@pytest.fixture
def service() -> FakeService:
    """What answers behind `served`."""
    return FakeService()


@pytest.fixture(params=LOOPS)
def served(request: pytest.FixtureRequest, service: FakeService) -> Iterator[Served]:
    """A server in front of `service`, in turn on asyncio's own loop and on uvloop's."""
    with serving(service=service, loop=request.param) as running:
        yield running


class Raw:
    """A channel, and calls by their names: what any gRPC client has."""

    def __init__(self, address: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self.channel = grpc.insecure_channel(address, options)

    def start(self, name: str, message: Any, *, within_s: float = WITHIN_S, **words: str) -> Any:
        """The call under way."""
        method = METHODS[f"/{SERVICE}/{name}"]
        make = self.channel.unary_stream if method.streams else self.channel.unary_unary
        write = None if isinstance(message, bytes) else method.request.SerializeToString
        stub: Any = make(f"/{SERVICE}/{name}", write, method.reply.FromString)
        metadata = [(word.replace("_", "-"), text) for word, text in words.items()]
        begin = stub if method.streams else stub.future
        return begin(message, timeout=within_s, metadata=metadata)

    def call(self, name: str, message: Any) -> Any:
        """Its reply."""
        return self.start(name, message).result()

    def status(self, name: str, message: Any) -> tuple[grpc.StatusCode, str]:
        """How it ends."""
        call = self.start(name, message)
        return call.code(), call.details()


@pytest.fixture
def dial() -> Iterator[Callable[[Served], Raw]]:
    """A function from a server to a client of it, which is closed after the test."""
    with ExitStack() as stack:

        def connect(served: Served) -> Raw:
            raw = Raw(served.address)
            stack.callback(raw.channel.close)
            return raw

        yield connect


@pytest.fixture
def raw(served: Served, dial: Callable[[Served], Raw]) -> Raw:
    """A client of `served`."""
    return dial(served)


RECORD = pb.PublishRecord(key="orders", payload=b"one")
CONSUMER = pb.Identification(consumerID="c")


# ── who calls ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5467", "127.0.0.1:5467"),
        ("ipv6:%5B::1%5D:5467", "[::1]:5467"),
        ("ipv6:[::1]:5467", "[::1]:5467"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5467", "[fe80::1%eth0]:5467"),
        ("unix:", ""),
    ],
)
def test_a_peer_is_spelled_as_in_the_keys_of_the_page(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_a_client_without_metadata_is_known_by_its_address(raw: Raw, service: FakeService) -> None:
    assert raw.call("Publish", RECORD) == pb.Result(code=0)
    ((request, caller),) = service.requests
    assert request == RECORD
    host, _, port = caller.peer.rpartition(":")
    assert host == "127.0.0.1"
    assert port.isdigit()
    assert caller.ack is None


def test_a_client_over_ipv6_has_its_address_in_brackets(
    service: FakeService, dial: Callable[[Served], Raw]
) -> None:
    with serving(service=service, host="::1") as served:
        dial(served).call("Publish", RECORD)
        assert served.address.startswith("[::1]:")
    assert service.requests[0][1].peer.startswith("[::1]:")


def test_an_ipv4_client_of_a_server_on_all_addresses_has_an_ipv4_peer_name(
    service: FakeService, dial: Callable[[Served], Raw]
) -> None:
    with serving(service=service, host="0.0.0.0") as served:
        dial(served).call("Publish", RECORD)
    assert service.requests[0][1].peer.startswith("127.0.0.1:")


def test_metadata_carries_the_peer_and_the_acknowledged_batch(
    raw: Raw, service: FakeService
) -> None:
    call = raw.start("Observe", CONSUMER, x_gomq_peer="me", x_gomq_ack="b7")
    assert call.result() == pb.RecordSet()
    assert dict(call.initial_metadata())[BATCH] == "batch-1"
    assert (service.requests[0][1].peer, service.requests[0][1].ack) == ("me", "b7")
    assert (PEER, ACK) == ("x-gomq-peer", "x-gomq-ack")


# ── statuses ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidFormat("key", "", "it must not be empty"), Status.INVALID_ARGUMENT),
        (MessageTooLong("orders", 9, 8), Status.RESOURCE_EXHAUSTED),
        (StoreFull("out of memory"), Status.RESOURCE_EXHAUSTED),
        (WrongType(("QUEUE_a",)), Status.FAILED_PRECONDITION),
        (StoreUnavailable("redis://127.0.0.1:1/0 is away"), Status.UNAVAILABLE),
        (BrokerRefused("call", "UNAUTHENTICATED", "no"), Status.UNAUTHENTICATED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TamboError) else "",
)
@pytest.mark.parametrize("name", ["Publish", "Watch"])
def test_an_error_of_the_service_is_a_status_and_nothing_for_the_log(
    name: str,
    error: TamboError,
    status: grpc.StatusCode,
    raw: Raw,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.error = error
    code, details = raw.status(name, RECORD if name == "Publish" else CONSUMER)
    assert code is status
    assert details == getattr(error, "details", str(error))
    assert not warnings(caplog)


@pytest.mark.parametrize("name", ["Publish", "Watch"])
def test_an_unexpected_error_is_logged_once_and_not_sent_to_the_client(
    name: str, raw: Raw, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.error = ValueError("a secret")
    code, details = raw.status(name, RECORD if name == "Publish" else CONSUMER)
    assert code is Status.INTERNAL
    assert "secret" not in details
    (record,) = warnings(caplog)
    assert record.name == "tambomq.gomq.server.grpc_handlers"
    assert record.exc_info
    assert record.exc_info[1] is service.error
    service.error = None
    assert raw.call("Publish", RECORD) == pb.Result(code=0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The logged warnings and errors."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("path", [f"/{SERVICE}/Purge", "/routeguide.Nothing/Publish"])
def test_a_call_that_does_not_exist_is_unimplemented(path: str, raw: Raw) -> None:
    call = raw.channel.unary_unary(path, None, None).future(b"", timeout=WITHIN_S)
    assert call.code() is Status.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["Publish", "PublishMany", "Subscribe", "Observe", "Watch"])
def test_an_unparsable_request_is_an_invalid_argument(
    name: str, raw: Raw, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    code, details = raw.status(name, b"\xff\xff\xff\xff")
    assert code is Status.INVALID_ARGUMENT
    assert METHODS[f"/{SERVICE}/{name}"].request.__name__ in details
    assert not service.requests
    assert not warnings(caplog)


def test_text_that_is_not_utf8_is_an_invalid_argument(raw: Raw) -> None:
    assert raw.status("Publish", b"\x0a\x02\xff\xfe")[0] is Status.INVALID_ARGUMENT


def test_fields_of_a_later_protocol_are_ignored(raw: Raw, service: FakeService) -> None:
    later = RECORD.SerializeToString() + b"\x98\x06\x05"
    assert raw.call("Publish", later) == pb.Result(code=0)
    assert (service.requests[0][0].key, service.requests[0][0].payload) == ("orders", b"one")


def test_a_message_above_the_limit_is_refused_and_one_at_the_limit_taken(
    service: FakeService, dial: Callable[[Served], Raw]
) -> None:
    with serving(service=service, options=Options(max_message_bytes=1 << 16)) as served:
        raw = dial(served)
        around = pb.PublishRecord(key="k", payload=b"x" * (1 << 16)).ByteSize() - (1 << 16)
        fits = pb.PublishRecord(key="k", payload=b"x" * ((1 << 16) - around))
        assert fits.ByteSize() == 1 << 16
        assert raw.call("Publish", fits) == pb.Result(code=0)
        fits.payload += b"x"
        assert raw.status("Publish", fits)[0] is Status.RESOURCE_EXHAUSTED
        assert len(service.requests) == 1


# ── ends of calls ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["Publish", "Watch"])
def test_a_call_whose_time_is_over_is_not_worked_on_any_longer(
    name: str, raw: Raw, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.hang = True
    call = raw.start(name, RECORD if name == "Publish" else CONSUMER, within_s=0.2)
    assert call.code() is Status.DEADLINE_EXCEEDED
    eventually(lambda: service.cancelled == 1)
    assert not warnings(caplog)


@pytest.mark.parametrize("name", ["Publish", "Watch"])
def test_a_call_that_is_cancelled_is_not_worked_on_any_longer(
    name: str, raw: Raw, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.hang = True
    call = raw.start(name, RECORD if name == "Publish" else CONSUMER)
    eventually(lambda: service.requests)
    call.cancel()
    eventually(lambda: service.cancelled == 1)
    assert not warnings(caplog)


def test_watching_ends_with_ok_when_the_service_ends_the_stream(
    raw: Raw, service: FakeService
) -> None:
    service.batches = [pb.RecordSet(records=[pb.Record(key=key)]) for key in "abc"]
    call = raw.start("Watch", CONSUMER)
    assert [each.records[0].key for each in call] == ["a", "b", "c"]
    assert call.code() is Status.OK


def test_a_stopping_server_ends_watching_with_unavailable_at_once(
    raw: Raw, served: Served, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.hang, service.batches = True, [pb.RecordSet()]
    calls = [raw.start("Watch", CONSUMER) for _ in range(3)]
    for call in calls:
        next(call)
    served.run(served.server.stop(grace_s=WITHIN_S))
    for call in calls:
        assert call.code() is Status.UNAVAILABLE
        assert call.details() == "the server is stopping"
    assert service.cancelled == 3
    assert not warnings(caplog)


def test_a_stopping_server_cuts_off_what_outlasts_its_grace(
    raw: Raw, served: Served, service: FakeService
) -> None:
    service.hang = True
    call = raw.start("Publish", RECORD)
    eventually(lambda: service.requests)
    served.run(served.server.stop(grace_s=0.1))
    assert call.code() is Status.UNAVAILABLE
    assert service.cancelled == 1


# ── life ─────────────────────────────────────────────────────────────────────


def test_a_taken_port_is_an_error_and_nothing_is_left_behind(served: Served) -> None:
    host, port = served.server.address

    async def start() -> None:
        with pytest.raises(BrokerUnavailable, match=r"cannot listen.*in use") as caught:
            await GomqServer(port=port).start()
        assert caught.value.address == f"{host}:{port}"

    served.run(start())


def test_a_name_is_taken_if_one_of_its_addresses_is(served: Served) -> None:
    _, port = served.server.address

    async def start() -> None:
        with pytest.raises(BrokerUnavailable, match="cannot listen"):
            await GomqServer(host="localhost", port=port).start()

    served.run(start())


def test_an_unknown_host_is_an_error(served: Served) -> None:
    async def start() -> None:
        with pytest.raises(BrokerUnavailable, match="cannot listen"):
            await GomqServer(host="no such host", port=0).start()

    served.run(start())


def test_a_server_without_its_store_does_not_start_and_frees_its_port(served: Served) -> None:
    async def start() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            away = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        server = GomqServer(AsyncStore(away, patience_s=0), port=0)
        with pytest.raises(StoreUnavailable):
            await server.start()
        return server.address[1]

    port = served.run(start())
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_server_that_was_stopped_starts_again_at_the_same_place(
    served: Served, raw: Raw, dial: Callable[[Served], Raw]
) -> None:
    before = served.server.address
    raw.call("Publish", RECORD)
    served.run(served.server.stop(0))
    with pytest.raises(BrokerUnavailable, match="not started"):
        served.run(served.server.check())
    served.run(served.server.start())
    assert served.server.address == before
    assert dial(served).call("Publish", RECORD) == pb.Result(code=0)


def test_a_server_checks_itself(served: Served, service: FakeService) -> None:
    served.run(served.server.check())
    service.error = StoreUnavailable("redis is away")
    with pytest.raises(BrokerUnavailable, match="redis is away"):
        served.run(served.server.check())


async def test_a_store_that_was_given_stays_open(server: Server) -> None:
    store = AsyncStore(server.url)
    async with GomqServer(store, port=0) as gomq:
        assert gomq.stats.published == 0
        await gomq.check()
    assert store._loop_state().connections
    await store.close()


def test_a_hundred_connections_are_a_hundred_peers(
    server: Server, db: redis.Redis, dial: Callable[[Served], Raw]
) -> None:
    with serving(server.url, loop="uvloop") as served:
        raws = [dial(served) for _ in range(100)]
        subscription = pb.Subscription(key="k", consumerID="c")
        for call in [raw.start("Subscribe", subscription) for raw in raws]:
            assert call.result() == pb.Result(code=0)
        raws[0].call("Publish", pb.PublishRecord(key="k", payload=b"one"))
        for call in [raw.start("Observe", CONSUMER) for raw in raws]:
            (record,) = call.result().records
            assert record.value.payload == b"one"
        assert db.scard("PEERS_c") == 100
