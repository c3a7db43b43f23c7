"""Health, reflection and tokens of a GOMQ server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tambomq.errors import BrokerRefused, StoreUnavailable
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server import health
from tambomq.gomq.server.methods import SERVICE
from tests.gomq.fakes import KINDS, FakeService, connected, serving

Status = grpc.StatusCode
Reply = health_pb2.HealthCheckResponse
WITHIN_S = 60.0
TOKEN = [("authorization", "Bearer open sesame")]


@pytest.fixture
def service() -> FakeService:
    """What answers behind the server."""
    return FakeService()


@contextmanager
def channel(service: FakeService, **options: Any) -> Iterator[grpc.Channel]:
    """A channel to a server in front of *service*."""
    with serving(service=service, **options) as served, dialled(served.address) as opened:
        yield opened


@contextmanager
def dialled(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as opened:
        yield opened


def check(opened: grpc.Channel, name: str = "") -> Any:
    """How the service of that name says it is."""
    stub = health_pb2_grpc.HealthStub(opened)
    return stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=WITHIN_S).status


def listed(opened: grpc.Channel, metadata: list[tuple[str, str]] | None = None) -> list[str]:
    """What the server says it serves."""
    (reply,) = reflected(opened, metadata, list_services="")
    return [each.name for each in reply.list_services_response.service]


def reflected(opened: grpc.Channel, metadata: Any = None, **question: str) -> list[Any]:
    """The answers to a question about the protocol."""
    stub = reflection_pb2_grpc.ServerReflectionStub(opened)
    asked = iter([reflection_pb2.ServerReflectionRequest(**question)])
    return list(stub.ServerReflectionInfo(asked, timeout=WITHIN_S, metadata=metadata))


@pytest.mark.parametrize("name", ["", SERVICE])
def test_a_server_with_its_store_is_serving(name: str, service: FakeService) -> None:
    with channel(service) as opened:
        assert check(opened, name) == Reply.SERVING


def test_a_server_without_its_store_is_not_serving_until_it_is_back(service: FakeService) -> None:
    with channel(service) as opened:
        service.error = StoreUnavailable("away")
        assert check(opened) == Reply.NOT_SERVING
        service.error = None
        assert check(opened) == Reply.SERVING


def test_a_server_whose_store_is_silent_is_not_serving(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PING_TIMEOUT_S", 0.05)
    service.hang = True
    with channel(service) as opened:
        assert check(opened) == Reply.NOT_SERVING


def test_the_health_of_something_else_is_not_known(service: FakeService) -> None:
    with channel(service) as opened:
        with pytest.raises(grpc.RpcError) as caught:
            check(opened, "routeguide.Nothing")
        error: Any = caught.value
        assert error.code() is Status.NOT_FOUND


def test_a_health_watch_reports_each_change(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_EVERY_S", 0.01)
    with channel(service) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        changes = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WITHIN_S)
        assert next(changes).status == Reply.SERVING
        service.error = StoreUnavailable("away")
        assert next(changes).status == Reply.NOT_SERVING
        service.error = None
        assert next(changes).status == Reply.SERVING
        changes.cancel()


def test_a_health_watch_of_an_unknown_service_reports_that_and_stays_open(
    service: FakeService,
) -> None:
    with serving(service=service) as served, dialled(served.address) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        changes = stub.Watch(health_pb2.HealthCheckRequest(service="?"), timeout=WITHIN_S)
        assert next(changes).status == Reply.SERVICE_UNKNOWN
        assert changes.is_active()
        served.run(served.server.stop(WITHIN_S))
        assert changes.code() is Status.UNAVAILABLE


def test_a_server_lists_what_it_serves(service: FakeService) -> None:
    with channel(service) as opened:
        assert set(listed(opened)) == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (SERVICE, pb.DESCRIPTOR.name),
        ("grpc.health.v1.Health", health_pb2.DESCRIPTOR.name),
        ("grpc.reflection.v1alpha.ServerReflection", reflection_pb2.DESCRIPTOR.name),
    ],
)
def test_a_server_describes_what_it_serves(name: str, file: str, service: FakeService) -> None:
    with channel(service) as opened:
        (reply,) = reflected(opened, file_containing_symbol=name)
        (described,) = reply.file_descriptor_response.file_descriptor_proto
        assert FileDescriptorProto.FromString(described).name == file


def test_with_a_token_health_is_for_all_and_reflection_is_not(service: FakeService) -> None:
    with channel(service, token="open sesame") as opened:
        assert check(opened) == Reply.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            listed(opened)
        error: Any = caught.value
        assert error.code() is Status.UNAUTHENTICATED
        assert SERVICE in listed(opened, TOKEN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("token", [None, "", "open", "open sesame!", "öpen sesame".encode().hex()])
def test_without_the_token_no_call_reaches_the_service(
    kind: str, token: str | None, service: FakeService
) -> None:
    with (
        serving(service=service, token="open sesame") as served,
        connected(kind, served.address, token=token) as client,
    ):
        with pytest.raises(BrokerRefused) as caught:
            client.publish("orders", "one")
        assert caught.value.status == "UNAUTHENTICATED"
        with pytest.raises(BrokerRefused):
            list(client.watch("c"))
        assert not service.requests


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_token_calls_reach_the_service(kind: str, service: FakeService) -> None:
    with (
        serving(service=service, token="open sesame") as served,
        connected(kind, served.address, token="open sesame") as client,
    ):
        client.publish("orders", "one")
        assert list(client.watch("c")) == []
    assert len(service.requests) == 3


def test_a_client_that_disconnects_before_its_reply_is_not_logged(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    grpcs = logging.getLogger("grpc._cython.cygrpc")
    with serving(service=service):
        grpcs.error("the client is gone", exc_info=grpc.aio.InternalError())
        grpcs.error("something else", exc_info=ValueError())
    assert [record.message for record in caplog.records] == ["something else"]
