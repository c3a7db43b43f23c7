from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidFormat, StoreUnavailable, TamboError
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.envoy import app as app_module
from tambomq.gomq.envoy import grpc_framing
from tambomq.gomq.envoy.app import HEALTH, REFLECTION, GomqApp
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.methods import METHODS
from tests.gomq.asgi_client import MAX, Exchange, FakeService, asked, made
from tests.servers import eventually_async

PUBLISH = "/routeguide.RouteGuide/Publish"
OBSERVE = "/routeguide.RouteGuide/Observe"
WATCH = "/routeguide.RouteGuide/Watch"
RECORD = pb.PublishRecord(key="k", payload=b"hello")

OK, CANCELLED, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 3, 4, 5
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 12, 13, 14, 16


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def app(service: FakeService) -> GomqApp:
    return made(service)


@pytest.fixture
async def listening(app: GomqApp, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GomqApp]:
    """The application, which looks often whether clients are gone."""
    monkeypatch.setattr(app_module, "_POLL_EVERY_S", 0.001)
    task = asyncio.create_task(app.poll_disconnects())
    yield app
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_call_is_answered_with_a_message_and_trailers(
    app: GomqApp, service: FakeService
) -> None:
    call = await asked(app, PUBLISH, RECORD)
    assert service.requests == [(RECORD, Caller("127.0.0.1:5467"))]
    kinds = [event["type"].rpartition(".")[2] for event in call.events]
    assert kinds == ["start", "body", "trailers"]
    assert call.headers["content-type"] == "application/grpc"
    assert call.events[0]["trailers"] is True
    assert pb.Result.FromString(*call.messages) == pb.Result(code=0)
    assert call.status == (OK, "")


@pytest.mark.parametrize("path", METHODS)
async def test_every_method_is_served(path: str, app: GomqApp, service: FakeService) -> None:
    request = METHODS[path].request()
    assert (await asked(app, path, request)).status == (OK, "")
    assert service.requests[0][0] == request


@given(st.sets(st.integers(0, len(RECORD.SerializeToString()) + 5)))
def test_request_may_come_in_any_pieces(cuts: set[int]) -> None:
    async def run() -> None:
        service = FakeService()
        body, ends = grpc_framing.frame(RECORD.SerializeToString()), sorted(cuts)
        pieces = [body[a:b] for a, b in zip([0, *ends], [*ends, len(body)], strict=True)]
        call = Exchange(made(service), PUBLISH)
        await call.start([*pieces, b""])
        assert call.status == (OK, "")
        assert service.requests[0][0] == RECORD

    asyncio.run(run())


async def test_metadata_is_read_from_the_request_and_sent_in_the_response(
    app: GomqApp, service: FakeService
) -> None:
    ask = pb.Identification(consumerID="c")
    call = await asked(app, OBSERVE, ask, x_gomq_peer="me", x_gomq_ack="b0")
    caller = service.requests[0][1]
    assert (caller.peer, caller.ack) == ("me", "b0")
    assert call.headers["x-gomq-batch"] == "b1"


async def test_address_of_a_peer_is_written_as_keys_have_it(
    app: GomqApp, service: FakeService
) -> None:
    call = Exchange(app, PUBLISH, client=("::1", 5467))
    await call.start([grpc_framing.frame(b"")])
    assert service.requests[0][1].peer == "[::1]:5467"


async def test_stream_is_sent_message_by_message(app: GomqApp, service: FakeService) -> None:
    call = await asked(app, WATCH, pb.Identification(consumerID="c"))
    sets = [pb.RecordSet.FromString(message) for message in call.messages]
    assert [each.records[0].key for each in sets] == ["0", "1", "2"]
    assert call.status == (OK, "")
    assert service.ended == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidFormat("key", "", "it is empty"), INVALID_ARGUMENT),
        (StoreUnavailable("redis is away: größe 100%"), UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("path", [PUBLISH, WATCH])
async def test_errors_become_statuses(
    error: TamboError, status: int, path: str, app: GomqApp, service: FakeService
) -> None:
    service.error = error
    assert (await asked(app, path, b"\0\0\0\0\0")).status == (status, str(error))


async def test_internal_failure_is_logged_and_not_sent_to_the_client(
    app: GomqApp, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    service.error = RuntimeError("secret")
    code, text = (await asked(app, PUBLISH, RECORD)).status
    assert code == INTERNAL
    assert "secret" not in text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "words", "status"),
    [
        ("/routeguide.RouteGuide/Nothing", b"\0\0\0\0\0", {}, UNIMPLEMENTED),
        ("/", b"", {}, UNIMPLEMENTED),
        (PUBLISH, b"", {}, UNIMPLEMENTED),
        (PUBLISH, b"\0\0\0\0\0" * 2, {}, UNIMPLEMENTED),
        (PUBLISH, b"\0\0\0\0\0", {"grpc_encoding": "snappy"}, UNIMPLEMENTED),
        (PUBLISH, b"\1\0\0\0\1x", {}, INTERNAL),
        (PUBLISH, b"\0\0\0\0\2\xff\xff", {}, INVALID_ARGUMENT),
        (PUBLISH, b"\0\0\0\0\0", {"grpc_timeout": "soon"}, INVALID_ARGUMENT),
        (PUBLISH, b"\0\0\0\0\0", {"x_gomq_peer": "a:b"}, INVALID_ARGUMENT),
    ],
)
async def test_bad_calls_get_a_status_and_do_not_reach_the_service(
    path: str,
    body: bytes,
    words: dict[str, str],
    status: int,
    app: GomqApp,
    service: FakeService,
    caplog: pytest.LogCaptureFixture,
) -> None:
    code, text = (await asked(app, path, body, **words)).status
    assert code == status
    assert text
    assert not service.requests
    assert not caplog.records


async def test_unknown_encoding_is_refused_with_the_known_ones(app: GomqApp) -> None:
    call = await asked(app, PUBLISH, RECORD, grpc_encoding="snappy")
    assert call.headers["grpc-accept-encoding"] == "identity,deflate,gzip"


async def test_request_may_be_compressed(app: GomqApp, service: FakeService) -> None:
    data = gzip.compress(RECORD.SerializeToString())
    body = b"\1" + len(data).to_bytes(4, "big") + data
    assert (await asked(app, PUBLISH, body, grpc_encoding="gzip")).status == (OK, "")
    assert service.requests[0][0] == RECORD


async def test_too_long_a_message_is_refused_before_it_comes(app: GomqApp) -> None:
    call = Exchange(app, PUBLISH)
    await call.start([b"\0" + (MAX + 1).to_bytes(4, "big")], ends=False)
    assert call.status[0] == RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"words": {"content-type": "application/json"}}, 415),
        ({"words": {"content-type": "application/grpc-web"}}, 415),
        ({"words": {"content-type": "application/grpc+json"}}, 415),
        ({"method": "GET"}, 405),
        ({"http_version": "1.1"}, 505),
    ],
)
async def test_a_request_that_is_not_grpc_gets_an_http_status(
    change: dict[str, Any], status: int, app: GomqApp
) -> None:
    call = Exchange(app, PUBLISH, **change)
    await call.start([grpc_framing.frame(b"")])
    assert call.events[0]["status"] == status


@pytest.mark.parametrize("kind", ["application/grpc+proto", "application/grpc; charset=utf-8"])
async def test_grpc_may_name_its_codec(kind: str, app: GomqApp) -> None:
    call = Exchange(app, PUBLISH, {"content-type": kind})
    await call.start([grpc_framing.frame(b"")])
    assert call.status == (OK, "")


async def test_the_token_is_checked_before_the_message_is_read(service: FakeService) -> None:
    app = made(service, token="secret")
    call = Exchange(app, PUBLISH)
    await call.start([], ends=False)
    assert call.status[0] == UNAUTHENTICATED
    assert (await asked(app, PUBLISH, RECORD, authorization="Bearer secret")).status[0] == OK
    assert (await asked(app, f"/{HEALTH}/Check", b"\0\0\0\0\0")).status[0] == OK


@pytest.mark.parametrize("path", [PUBLISH, WATCH])
async def test_call_ends_at_its_deadline(path: str, app: GomqApp, service: FakeService) -> None:
    service.hanging = True
    call = await asked(app, path, b"\0\0\0\0\0", grpc_timeout="1m")
    assert call.status[0] == DEADLINE_EXCEEDED
    assert service.ended


async def test_call_that_is_faster_than_its_deadline_is_just_answered(app: GomqApp) -> None:
    call = await asked(app, PUBLISH, RECORD, grpc_timeout="10S")
    assert call.status == (OK, "")


@pytest.mark.parametrize("chatty", [True, False])
@pytest.mark.parametrize("path", [PUBLISH, WATCH])
async def test_client_that_goes_away_ends_its_call(
    path: str, chatty: bool, listening: GomqApp, service: FakeService
) -> None:
    service.hanging = True
    call = Exchange(listening, path, chatty=chatty)
    task = call.start([grpc_framing.frame(b"")])
    await eventually_async(lambda: service.requests)
    call.disconnected.set()
    await task
    assert service.ended


async def test_the_call_of_a_connected_client_is_not_ended(
    listening: GomqApp, service: FakeService
) -> None:
    service.hanging = True
    call = Exchange(listening, PUBLISH, chatty=True)
    task = call.start([grpc_framing.frame(b"")])
    await eventually_async(lambda: service.requests)
    await eventually_async(lambda: call.asked > 5)
    assert not task.done()
    await listening.close(0)
    await task


async def test_an_incomplete_request_of_a_disconnected_client_is_dropped(
    app: GomqApp, service: FakeService
) -> None:
    call = Exchange(app, PUBLISH)
    task = call.start([b"\0\0"], ends=False)
    call.disconnected.set()
    await task
    assert not service.requests
    assert not call.events


async def test_watcher_that_cannot_be_written_to_is_closed(
    app: GomqApp, service: FakeService
) -> None:
    call = Exchange(app, WATCH)
    send = call._send

    async def break_after_one(event: Any) -> None:
        await send(event)
        if event["type"] == "http.response.body":
            call.disconnected.set()

    call._send = break_after_one  # type: ignore[method-assign]
    await call.start([grpc_framing.frame(b"")])
    assert service.ended == 1
    assert len(call.messages) == 1


async def test_cancelling_from_outside_is_not_swallowed(app: GomqApp, service: FakeService) -> None:
    service.hanging = True
    task = Exchange(app, PUBLISH).start([grpc_framing.frame(b"")])
    await eventually_async(lambda: service.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_ends_watchers_at_once_and_others_after_their_grace(
    app: GomqApp, service: FakeService
) -> None:
    service.hanging = True
    calls = [Exchange(app, path) for path in (WATCH, PUBLISH)]
    tasks = [call.start([grpc_framing.frame(b"")]) for call in calls]
    await eventually_async(lambda: len(service.requests) == 2)
    closing = asyncio.create_task(app.close(60))
    await tasks[0]
    assert calls[0].status == (UNAVAILABLE, "the server is stopping")
    assert not closing.done()
    assert (await asked(app, PUBLISH, RECORD)).status[0] == UNAVAILABLE
    closing.cancel()
    await app.close(0)
    assert tasks[1].done()
    assert calls[1].status[0] == UNAVAILABLE


async def test_closing_waits_for_what_is_under_way(app: GomqApp, service: FakeService) -> None:
    go = asyncio.Event()
    service._ping = go.wait  # type: ignore[method-assign,assignment]
    call = Exchange(app, PUBLISH)
    task = call.start([grpc_framing.frame(b"")])
    await eventually_async(lambda: service.requests)
    closing = asyncio.create_task(app.close(60))
    go.set()
    await closing
    assert task.done()
    assert call.status == (OK, "")


@pytest.mark.parametrize(
    ("error", "health"), [(None, "SERVING"), (StoreUnavailable("away"), "NOT_SERVING")]
)
async def test_health_is_that_of_the_store(
    error: Exception | None, health: str, app: GomqApp, service: FakeService
) -> None:
    service.error = error
    for name in ("", "routeguide.RouteGuide"):
        ask = health_pb2.HealthCheckRequest(service=name)
        call = await asked(app, f"/{HEALTH}/Check", ask)
        reply = health_pb2.HealthCheckResponse.FromString(*call.messages)
        assert health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status) == health


async def test_health_of_an_unknown_service_is_not_found(app: GomqApp) -> None:
    ask = health_pb2.HealthCheckRequest(service="none")
    assert (await asked(app, f"/{HEALTH}/Check", ask)).status[0] == NOT_FOUND


async def test_health_can_be_watched(app: GomqApp) -> None:
    call = Exchange(app, f"/{HEALTH}/Watch")
    task = call.start([grpc_framing.frame(b"")])
    await eventually_async(lambda: len(call.events) == 2)
    assert health_pb2.HealthCheckResponse.FromString(*call.messages).status == 1
    await app.close(0)
    await task
    assert call.status[0] == UNAVAILABLE


async def test_reflection_answers_each_question_of_a_stream(app: GomqApp) -> None:
    ask: Callable[..., Any] = reflection_pb2.ServerReflectionRequest
    questions = [ask(list_services=""), ask(file_containing_symbol="routeguide.RouteGuide")]
    body = b"".join(grpc_framing.frame(each.SerializeToString()) for each in questions)
    call = Exchange(app, f"/{REFLECTION}/ServerReflectionInfo")
    await call.start([body[:7], body[7:]])
    services, files = map(reflection_pb2.ServerReflectionResponse.FromString, call.messages)
    names = [each.name for each in services.list_services_response.service]
    assert "routeguide.RouteGuide" in names
    assert b"PublishRecord" in files.file_descriptor_response.file_descriptor_proto[0]
    assert call.status == (OK, "")
