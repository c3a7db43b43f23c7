"""What the API takes and returns: parameters, bodies, errors, and the audit log."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.console.http.api import MAX_BODY_BYTES
from tambomq.errors import StoreUnavailable
from tests.console.http.conftest import Open
from tests.console.http.memory import PAYMENTS

QUEUE = "queue=chasqui:payments"
SEND = f"/messages/send?{QUEUE}"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/queue", "parameter"),
        ("/queue?queue=", "parameter"),
        ("/queue?queue=payments", "invalid_format"),
        ("/queue?queue=kafka:payments", "invalid_format"),
        (f"/queue?{QUEUE}&{QUEUE}", "parameter"),
        (f"/queue?{QUEUE}&unknown=1", "parameter"),
        (f"/messages?{QUEUE}&limit=0", "parameter"),
        (f"/messages?{QUEUE}&limit=1000000", "parameter"),
        (f"/messages?{QUEUE}&limit=x", "parameter"),
        (f"/messages?{QUEUE}&state=odd", "parameter"),
        (f"/message?{QUEUE}", "parameter"),
        ("/audit?limit=-1", "parameter"),
    ],
)
async def test_wrong_parameters_are_refused(browse: Open, path: str, kind: str) -> None:
    reply = await (await browse()).get(f"/api/v1{path}")
    assert (reply.status_code, reply.json()["kind"]) == (400, kind)


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"{", 400, "body"),
        (b"[]", 400, "body"),
        (b'{"body": 1}', 400, "body"),
        (b'{"body": "x", "encoding": "odd"}', 400, "body"),
        (b'{"body": "x", "unknown": 1}', 400, "body"),
        (b'{"body": "\xff"}', 400, "body"),
        (b'{"body": "x", "delay_s": -1}', 400, "body"),
        (b"[" * 100_000, 400, "body"),
        (b'"' + b"x" * MAX_BODY_BYTES + b'"', 413, "too_large"),
    ],
    ids=range(9),
)
async def test_wrong_bodies_are_refused(
    browse: Open, content: bytes, status: int, kind: str
) -> None:
    browser = await browse()
    csrf = (await browser.get("/api/v1/session")).json()["csrf"]
    headers = {"X-Tambo-CSRF": csrf, "Content-Type": "application/json"}
    reply = await browser.post(f"/api/v1{SEND}", content=content, headers=headers)
    assert (reply.status_code, reply.json()["kind"]) == (status, kind)
    assert browser.memory.actions.calls == []


async def test_a_body_that_announces_no_length_is_limited_too(browse: Open) -> None:
    async def chunks() -> Any:
        for _ in range(40):
            yield b"x" * 65_536

    browser = await browse()
    csrf = (await browser.get("/api/v1/session")).json()["csrf"]
    headers = {"X-Tambo-CSRF": csrf, "Content-Type": "application/json"}
    reply = await browser.post(f"/api/v1{SEND}", content=chunks(), headers=headers)
    assert reply.status_code == 413


async def test_a_form_of_another_site_has_the_wrong_content_type(browse: Open) -> None:
    browser = await browse()
    headers = {"Content-Type": "text/plain"}
    reply = await browser.act(SEND, {"body": "x"}, headers=headers)
    assert (reply.status_code, reply.json()["kind"]) == (415, "content_type")


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/queue?queue=rsmq:nothing", "queue_not_found", 404),
        (f"/message?{QUEUE}&id=nothing", "message_not_found", 404),
    ],
)
async def test_a_missing_queue_or_message_is_a_404_with_its_kind(
    browse: Open, path: str, kind: str, status: int
) -> None:
    reply = await (await browse()).get(f"/api/v1{path}")
    assert (reply.status_code, reply.json()["kind"]) == (status, kind)


async def test_an_unreachable_redis_is_a_503_without_its_password(browse: Open) -> None:
    browser = await browse()
    browser.memory.reader.failure = StoreUnavailable("cannot reach redis://u:s3cret@h")
    reply = await browser.get("/api/v1/workers")
    assert (reply.status_code, reply.json()["kind"]) == (503, "store_unavailable")
    assert "s3cret" not in reply.text


async def test_a_bug_is_answered_as_json_without_its_details(browse: Open) -> None:
    browser = await browse()
    browser.memory.reader.failure = ZeroDivisionError("internal detail")
    reply = await browser.get("/api/v1/workers")
    assert (reply.status_code, reply.json()["kind"]) == (500, "internal")
    assert "internal detail" not in reply.text


async def test_before_redis_is_there_requests_are_answered_with_503(browse: Open) -> None:
    browser = await browse()
    await browser.memory.console.close()
    for path in ("/overview", "/live"):
        reply = await browser.get(f"/api/v1{path}")
        assert (reply.status_code, reply.json()["kind"]) == (503, "starting")
    assert (await browser.get("/api/v1/session")).status_code == 200


# ── actions and the audit log ────────────────────────────────────────────────


async def test_an_action_is_done_and_audited(browse: Open) -> None:
    browser = await browse()
    reply = await browser.act(f"/queue/pause?{QUEUE}")
    assert reply.json()["text"] == "Did pause chasqui:payments."
    assert browser.memory.actions.calls == [("pause", (PAYMENTS,))]
    (entry,) = browser.memory.audit.kept
    assert (entry.user, entry.role, entry.address) == ("local", "operator", "127.0.0.1")
    assert (entry.verb, entry.target, entry.outcome) == ("pause", "chasqui:payments", "done")
    shown = (await browser.get("/api/v1/audit")).json()["entries"]
    assert [each["verb"] for each in shown] == ["pause"]


async def test_a_dry_run_counts_and_is_not_audited(browse: Open) -> None:
    browser = await browse()
    reply = await browser.act(f"/queue/purge?{QUEUE}", {"dry_run": True})
    assert reply.json()["count"] == 3
    assert browser.memory.actions.calls == []
    assert browser.memory.audit.kept == []


async def test_the_number_that_was_confirmed_is_given_to_the_action(browse: Open) -> None:
    browser = await browse()
    await browser.act(f"/queue/purge?{QUEUE}", {"expected": 3})
    assert browser.memory.actions.calls == [("purge", (PAYMENTS, 3))]


async def test_an_action_on_a_selection_is_audited_with_its_queue(browse: Open) -> None:
    browser = await browse()
    await browser.act("/dead-letters/selections/s1/delete", {"typed_count": 3})
    (entry,) = browser.memory.audit.kept
    assert (entry.verb, entry.target) == ("delete letters", "chasqui:payments s1")


async def test_a_refused_action_is_audited(browse: Open) -> None:
    browser = await browse(read_only=True)
    await browser.act(f"/message/delete?{QUEUE}&id=7")
    (entry,) = browser.memory.audit.kept
    assert (entry.verb, entry.target) == ("delete", "chasqui:payments 7")
    assert (entry.outcome, entry.detail) == ("refused", "read_only")


async def test_a_failed_action_is_audited(browse: Open) -> None:
    browser = await browse()
    await browser.act("/queue/pause?queue=nonsense")
    (entry,) = browser.memory.audit.kept
    assert (entry.outcome, entry.target) == ("failed", "nonsense")


async def test_a_message_is_sent_as_it_was_typed(browse: Open) -> None:
    browser = await browse()
    body = {"body": '{"a":1}', "encoding": "json", "name": "mail", "attempts": 2}
    assert (await browser.act(SEND, body)).status_code == 200
    (call,) = browser.memory.actions.calls
    assert call[0] == "send"
    assert call[1][:3] == (PAYMENTS, '{"a":1}', "json")
    assert set(call[1][3:]) == {("name", "mail"), ("attempts", 2)}


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        (f"/message/run-now?{QUEUE}&id=7", {}, ("run_now", (PAYMENTS, "7"))),
        (f"/message/cancel?{QUEUE}&id=7", {"reason": "r"}, ("cancel", (PAYMENTS, "7", "r"))),
        (
            f"/message/edit?{QUEUE}&id=7",
            {"body": "b"},
            ("edit_and_run", (PAYMENTS, "7", "b", "text")),
        ),
        (f"/schedules/run-now?{QUEUE}&key=k", {}, ("run_schedule", (PAYMENTS, "k"))),
        (f"/schedules/skip?{QUEUE}&key=k", {}, ("skip_schedule", (PAYMENTS, "k"))),
        ("/dead-letters/selections/s1/replay", {"per_s": 5}, ("replay", ("s1", 5.0, 0))),
        ("/dead-letters/selections/s1/delete", {"typed_count": 3}, ("discard", ("s1", 3))),
        ("/operations/o1/undo", {}, ("undo", ("o1",))),
        ("/operations/o1/stop", {}, ("stop_operation", ("o1",))),
    ],
)
async def test_each_action_reaches_its_part(
    browse: Open, path: str, body: dict[str, Any], call: tuple[str, Any]
) -> None:
    browser = await browse()
    assert (await browser.act(path, body)).status_code == 200
    assert browser.memory.actions.calls == [call]
    assert [entry.outcome for entry in browser.memory.audit.kept] == ["done"]


async def test_a_selection_is_made_of_groups_and_reasons(browse: Open) -> None:
    browser = await browse()
    await browser.act("/dead-letters/selections", {"groups": ["a", "b"]})
    ((_, selector),) = browser.memory.actions.calls
    assert selector.groups == ["a", "b"]


async def test_lists_are_given_by_repeating_their_parameter(browse: Open) -> None:
    browser = await browse()
    await browser.get("/api/v1/dead-letters/letters?groups=a&groups=b&reasons=c")
    ((_, (selector, cursor, limit)),) = browser.memory.actions.calls
    assert (selector.groups, selector.reasons) == (["a", "b"], ["c"])
    assert (cursor, limit) == (None, 50)


async def test_find_returns_queues_by_name_and_messages_by_id(browse: Open) -> None:
    browser = await browse()
    found = (await browser.get("/api/v1/find?text=PAY")).json()
    assert (found["queues"], found["messages"]) == (["chasqui:payments"], [])
    found = (await browser.get("/api/v1/find?text=m-00001")).json()
    assert found["messages"] == [{"queue": "chasqui:payments", "id": "m-00001", "state": "visible"}]


async def test_workers_can_be_those_of_one_queue(browse: Open) -> None:
    browser = await browse()
    every = (await browser.get("/api/v1/workers")).json()
    assert (len(every["workers"]), len(every["leaders"])) == (1, 1)
    other = (await browser.get("/api/v1/workers?queue=rsmq:orders")).json()
    assert other == {"workers": [], "leaders": []}
