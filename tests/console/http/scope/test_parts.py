"""What a user with rights to some queues gets from each route: nothing of the other queues."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tambomq.access.directory import AccessOptions, UserDirectory
from tambomq.access.model import Right
from tambomq.console.http.routes import PREFIX, ROUTES, ApiRoute
from tambomq.console.model import PipelineStatus, QueueDetail, QueueRef, WorkerRow
from tests.access.users import Users
from tests.console.http.conftest import Browser, Open
from tests.console.http.memory import NO_SERIES, ORDERS, PAYMENTS, MemoryConsole, operation, row

SECRET = "payments"
"""The queue of others. Where it stands in a reply, it was leaked."""

Login = Callable[..., Awaitable[Browser]]


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.toml")


@pytest.fixture
async def log_in(browse: Open, users: Users) -> Login:
    """Open a console as a user with some rights to some queues."""

    async def open_as(rights: list[Right], queues: list[str], **options: Any) -> Browser:
        browser = await browse(has_users=True, **options)
        token = users.add("ann", rights, queues)
        directory = UserDirectory("The console", AccessOptions(str(users.path)))
        await directory.refresh()
        browser.memory.console.access.users = directory
        reply = await browser.log_in(token)
        assert reply.status_code == 200, reply.text
        return browser

    return open_as


def directory_of(browser: Browser) -> UserDirectory:
    found = browser.memory.console.access.users
    assert found is not None
    return found


def parameters(route: ApiRoute[Any, Any, Any], queue: QueueRef) -> dict[str, str]:
    """What *route* needs to be about *queue*."""
    names = route.query.__struct_fields__
    values = {"queue": str(queue), "id": "m-00001", "key": "k", "text": SECRET[:6]}
    return {
        name: value
        for name, value in values.items()
        if name in names and "{" + name not in route.path
    }


async def ask(browser: Browser, route: ApiRoute[Any, Any, Any], queue: QueueRef) -> Any:
    path, params = route.path.replace("{id}", "s1"), parameters(route, queue)
    if route.method == "GET":
        return await browser.get(PREFIX + path, params=params)
    body = {"/messages/send": {"body": "x"}, "/dead-letters/selections": {"queue": str(queue)}}
    if path.endswith("/edit"):
        body[path] = {"body": "x"}
    if path.endswith("/selections/s1/delete"):
        body[path] = {"typed_count": 0}  # type: ignore[dict-item]  # JSON
    return await browser.act(path, body.get(path, {}), params=params)


def every_route(method: str) -> list[Any]:
    return [pytest.param(each, id=each.path) for each in ROUTES if each.method == method]


@pytest.mark.parametrize("route", every_route("GET"))
async def test_no_read_shows_a_queue_of_others(
    log_in: Login, route: ApiRoute[Any, Any, Any]
) -> None:
    browser = await log_in(["look", "manage", "send"], ["rsmq:*"])
    browser.memory.actions.running = [operation("o1")]
    reply = await ask(browser, route, PAYMENTS)
    if "queue" in parameters(route, PAYMENTS):
        assert reply.status_code == 403, reply.text
        assert reply.json()["kind"] == "access_denied"
    elif "{id}" in route.path:
        # It names what somebody else has selected.
        assert reply.status_code == 409, reply.text
        assert browser.memory.actions.calls == []
    else:
        assert reply.status_code == 200, reply.text
        assert SECRET not in reply.text


@pytest.mark.parametrize("route", every_route("POST"))
async def test_no_action_changes_a_queue_of_others(
    log_in: Login, route: ApiRoute[Any, Any, Any]
) -> None:
    browser = await log_in(["look", "manage", "send"], ["rsmq:*"])
    browser.memory.actions.running = [operation("s1")]
    reply = await ask(browser, route, PAYMENTS)
    assert reply.status_code in (403, 409), reply.text
    assert browser.memory.actions.calls == []


@pytest.mark.parametrize("route", every_route("POST"))
async def test_a_user_with_look_alone_changes_nothing(
    log_in: Login, route: ApiRoute[Any, Any, Any]
) -> None:
    browser = await log_in(["look"], ["*"])
    reply = await ask(browser, route, ORDERS)
    assert reply.status_code == 403, reply.text
    assert browser.memory.actions.calls == []


async def test_a_user_with_send_alone_does_nothing_else(log_in: Login) -> None:
    browser = await log_in(["send"], ["rsmq:*"])
    for route in ROUTES:
        if route.method == "POST":
            is_send = route.path == "/messages/send"
            reply = await ask(browser, route, ORDERS)
            assert (reply.status_code == 200) is is_send, (route.path, reply.text)
    assert [verb for verb, _ in browser.memory.actions.calls] == ["send"]
    assert (await browser.get("/api/v1/overview")).json()["queues"] == []


async def test_a_user_sees_and_manages_its_own_queues(log_in: Login) -> None:
    browser = await log_in(["manage"], ["rsmq:*"])
    found = (await browser.get("/api/v1/overview")).json()
    assert [each["queue"] for each in found["queues"]] == [str(ORDERS)]
    assert found["totals"]["backlog"] == 3
    assert found["totals"]["dead"] == 0
    assert found["totals"]["out_per_s"] == found["totals"]["in_per_s"] == 2.0
    assert (await browser.get("/api/v1/queue", params={"queue": str(ORDERS)})).status_code == 200
    reply = await browser.act("/queue/pause", params={"queue": str(ORDERS)})
    assert reply.status_code == 200
    entry = browser.memory.audit.kept[-1]
    assert (entry.user, entry.verb, entry.target) == ("ann", "pause", str(ORDERS))


async def test_a_user_with_look_at_all_queues_sees_what_a_viewer_sees(
    log_in: Login, browse: Open
) -> None:
    browser, viewer = await log_in(["look"], ["*"]), await browse(viewer_token="v")
    await viewer.log_in("v")
    for path in ("/overview", "/workers", "/schedules", "/pipeline", "/operations"):
        mine, theirs = [await each.get(f"/api/v1{path}") for each in (browser, viewer)]
        assert mine.json() == theirs.json()


async def test_a_row_of_a_worker_names_no_queue_of_others(log_in: Login) -> None:
    browser = await log_in(["look"], ["kqueue:mine", "gomq:mine"])
    rows = [
        worker("kqueue", "a", ["mine", SECRET, "*"]),
        worker("kqueue", "b", [SECRET]),
        worker("kqueue", "c", ["*"]),
        worker("gomq:mine", "d", ["mine", SECRET]),
        worker(f"gomq:{SECRET}", "e", ["mine"]),
    ]

    async def workers(queue: str | None = None) -> list[WorkerRow]:
        del queue
        return rows

    async def queue(ref: QueueRef) -> QueueDetail:
        return QueueDetail(at_ms=1, row=row(ref), settings=[], throughput=NO_SERIES, workers=rows)

    browser.memory.reader.workers = workers  # type: ignore[method-assign]  # for this test
    browser.memory.reader.queue = queue  # type: ignore[method-assign]  # as above
    for path, params in (("/workers", {}), ("/queue", {"queue": "gomq:mine"})):
        reply = await browser.get(f"/api/v1{path}", params=params)
        assert SECRET not in reply.text
        assert [each["id"] for each in reply.json()["workers"]] == ["a", "d"]


def worker(queue: str, id: str, names: list[str]) -> WorkerRow:
    kind: Any = "consumer"
    return WorkerRow(queue=queue, id=id, kind=kind, alive=True, holds=0, subscriptions=names)


async def test_the_pipeline_and_the_audit_log_of_others_are_left_out(log_in: Login) -> None:
    browser = await log_in(["manage"], ["rsmq:*"])

    async def pipeline() -> PipelineStatus:
        return PipelineStatus(lake=f"/{SECRET}")

    memory = browser.memory
    memory.audit.kept = []
    await browser.act("/queue/pause", params={"queue": str(ORDERS)})
    other = memory.audit.kept[0]
    memory.audit.kept.append(type(other)(**{**as_dict(other), "user": "bob", "target": SECRET}))
    memory.console.open(type(memory.parts)(**{**fields(memory), "pipeline": pipeline}))
    assert SECRET not in (await browser.get("/api/v1/pipeline")).text
    entries = (await browser.get("/api/v1/audit")).json()["entries"]
    assert {each["user"] for each in entries} == {"ann"}


def as_dict(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def fields(memory: MemoryConsole) -> dict[str, Any]:
    return {name: getattr(memory.parts, name) for name in type(memory.parts).__slots__}


async def test_live_updates_show_only_the_queues_of_the_user(log_in: Login) -> None:
    browser = await log_in(["manage"], ["rsmq:*"])
    memory = browser.memory
    memory.actions.running = [operation("o1")]
    identity = memory.console.access.session(next(iter(browser.cookies.values())))
    assert identity is not None
    feed = memory.console.feed_of(identity)
    feed.enter()
    try:
        async for text in feed.events():
            assert SECRET.encode() not in text
            if text.startswith(b"event: overview"):
                seen = json.loads(text.partition(b"data: ")[2])
                assert [each["queue"] for each in seen["queues"]] == [str(ORDERS)]
                break
    finally:
        feed.leave()


async def test_a_removed_user_is_logged_out(log_in: Login, users: Users) -> None:
    browser = await log_in(["look"], ["*"])
    users.remove("ann")
    await directory_of(browser).refresh()
    assert (await browser.get("/api/v1/overview")).status_code == 401
    assert (await browser.get("/api/v1/session")).json()["needs_login"] is True


async def test_a_program_sends_its_token_with_each_request(log_in: Login, users: Users) -> None:
    browser = await log_in(["look"], ["rsmq:*"])
    browser.cookies.clear()
    token = users.add("program", ["look"], ["rsmq:*"])
    await directory_of(browser).refresh()
    for given, status in ((token, 200), (token[:-1], 401), ("x" * 5000, 401)):
        headers = {"Authorization": f"Bearer {given}"}
        reply = await browser.get("/api/v1/overview", headers=headers)
        assert reply.status_code == status
        assert SECRET not in reply.text


async def test_tokens_of_the_settings_are_as_they_were(log_in: Login) -> None:
    browser = await log_in(["look"], ["rsmq:*"], operator_token="op", viewer_token="view")
    for token, role in (("op", "operator"), ("view", "viewer")):
        session = (await browser.log_in(token)).json()
        assert (session["user"], session["role"]) == (role, role)
        assert len((await browser.get("/api/v1/overview")).json()["queues"]) == 2


async def test_denied_requests_are_counted(log_in: Login) -> None:
    browser = await log_in(["manage"], ["rsmq:*"])
    await browser.act("/queue/pause", params={"queue": str(PAYMENTS)})
    [denial] = directory_of(browser).denials.list()
    assert (denial.user, denial.right, denial.count) == ("ann", "manage", 1)
    assert browser.memory.audit.kept[-1].outcome == "refused"
