"""The console's component, with a real Redis behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
import redis

from tambomq.cli.console import console_components
from tambomq.console.http.keys import AUDIT
from tambomq.serve.console import make_console
from tambomq.serve.health import ProcessHealth
from tambomq.settings import load as settings
from tests.serve.components import opened
from tests.servers import Server

QUEUE = {"queue": "chasqui:mail"}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    flags = {"http_port": "0", "redis_url": server.url}
    parts = console_components(settings.load(env={}, flags=flags), ProcessHealth())
    async with AsyncExitStack() as stack:
        for part in parts:
            await stack.enter_async_context(opened(part))
        url = parts[0].endpoints[0].address + "/api/v1"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url))
        client.headers["X-Tambo-CSRF"] = (await client.get("/session")).json()["csrf"]
        yield client


async def test_a_message_is_sent_found_and_read(client: httpx.AsyncClient, db: redis.Redis) -> None:
    body = {"body": '{"to": "ada"}', "encoding": "json", "name": "welcome"}
    id = (await client.post("/messages/send", params=QUEUE, json=body)).json()["id"]
    page = (await client.get("/messages", params=QUEUE)).json()
    assert [(row["id"], row["name"]) for row in page["rows"]] == [(id, "welcome")]
    message = (await client.get("/message", params={**QUEUE, "id": id})).json()
    assert "ada" in message["body"][message["body"]["best"]]
    assert (await client.get("/queue", params=QUEUE)).json()["row"]["depth"] == 1
    found = (await client.get("/find", params={"text": id})).json()
    assert found["messages"] == [{"queue": "chasqui:mail", "id": id, "state": "visible"}]
    (entry,) = (await client.get("/audit")).json()["entries"]
    assert (entry["verb"], entry["target"], entry["outcome"]) == ("send", "chasqui:mail", "done")
    assert db.xlen(AUDIT) == 1


@pytest.mark.parametrize(
    "path", ["/overview", "/workers", "/schedules", "/dead-letters", "/operations", "/pipeline"]
)
async def test_an_empty_server_has_something_to_say(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200


async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    for path, params in (("/queue", QUEUE), ("/message", {**QUEUE, "id": "none"})):
        assert (await client.get(path, params=params)).status_code == 404


@pytest.mark.parametrize(
    ("flags", "has_console"),
    [
        ({}, True),
        ({"http_console": False}, False),
        ({"http_host": "0.0.0.0"}, False),
        ({"http_host": "0.0.0.0", "http_token": "secret"}, True),
        ({"http_host": "0.0.0.0", "http_viewer_token": "secret"}, True),
    ],
)
def test_beyond_loopback_there_is_no_console_without_a_token(
    flags: dict[str, object], has_console: bool
) -> None:
    assert (make_console(settings.load(env={}, flags=flags).http) is not None) == has_console
