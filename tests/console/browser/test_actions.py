"""Each action of the console with its confirmation, in a browser. The stand-in keeps its calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.browser.serving import ConsoleServer
from tests.servers import eventually

pytestmark = pytest.mark.slow

QUEUE = "/queue?q=chasqui%3Apayments"
ID = "01M7JGXBNGCBFD438G3QEGWJ00"
MESSAGE = f"/message?q=chasqui%3Apayments&id={ID}"


def _did(console: ConsoleServer, verb: str) -> list[tuple[Any, ...]]:
    return [call for call in console.stand_in.calls if call[0] == verb]


def _awaited(console: ConsoleServer, verb: str) -> tuple[Any, ...]:
    eventually(lambda: _did(console, verb))
    [call] = _did(console, verb)
    return call


def test_a_queue_is_paused_at_once(page: Page, console: ConsoleServer) -> None:
    page.goto(QUEUE)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".toast")).to_contain_text("Did pause to chasqui:payments.")
    assert _awaited(console, "pause") == ("pause", "chasqui:payments")


@pytest.mark.parametrize(("verb", "count"), [("drain", 16118), ("purge", 17522)])
def test_a_queue_is_emptied_once_the_count_is_typed(
    page: Page, console: ConsoleServer, verb: str, count: int
) -> None:
    page.goto(QUEUE)
    label = verb.capitalize()
    page.get_by_role("button", name=f"{label}…").click()
    expect(page.locator(".confirm")).to_contain_text(f"{count:,} jobs would be removed.")
    act = page.get_by_role("button", name=f"{label} {count:,}")
    expect(act).to_be_disabled()
    page.locator(".confirm input").fill(str(count - 1))
    expect(act).to_be_disabled()
    page.locator(".confirm input").fill(f"{count:,}")
    act.click()
    expect(page.locator(".toast")).to_contain_text(f"Did {verb}")
    expect(page.locator(".confirm")).to_have_count(0)
    assert _awaited(console, verb) == (verb, "chasqui:payments", count)


def test_a_confirmation_can_be_left(page: Page, console: ConsoleServer) -> None:
    page.goto(QUEUE)
    page.get_by_role("button", name="Purge…").click()
    expect(page.locator(".confirm")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".confirm")).to_have_count(0)
    expect(page.get_by_role("button", name="Purge…")).to_be_focused()
    assert not _did(console, "purge")


def test_selected_messages_are_run_and_cancelled(page: Page, console: ConsoleServer) -> None:
    page.goto(f"{QUEUE}&state=delayed")
    run = page.get_by_role("button", name="Run now")
    expect(run).to_be_disabled()
    page.get_by_label(f"Select {ID}").check()
    run.click()
    page.get_by_role("button", name="Run 1", exact=True).click()
    assert _awaited(console, "run_now") == ("run_now", "chasqui:payments", ID)
    expect(page.locator(".confirm")).to_have_count(0)
    page.get_by_label("All on this page").check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 20").click()
    eventually(lambda: len(_did(console, "cancel")) == 20)


def test_a_message_is_run_now(page: Page, console: ConsoleServer) -> None:
    page.goto(MESSAGE)
    page.get_by_role("button", name="Run now").click()
    assert _awaited(console, "run_now") == ("run_now", "chasqui:payments", ID)


def test_a_message_is_edited_and_run(page: Page, console: ConsoleServer) -> None:
    page.goto(MESSAGE)
    page.get_by_role("button", name="Edit and run…").click()
    page.get_by_label("The new body").fill('{"order": 2}')
    page.get_by_role("button", name="Run it").click()
    call = _awaited(console, "edit")
    assert call == ("edit", "chasqui:payments", ID, '{"order": 2}', "json")


def test_a_job_is_cancelled_with_a_reason(page: Page, console: ConsoleServer) -> None:
    page.goto(MESSAGE)
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Reason").fill("sent twice")
    page.get_by_role("button", name="Cancel the job").click()
    assert _awaited(console, "cancel") == ("cancel", "chasqui:payments", ID, "sent twice")


def test_a_message_is_deleted_and_its_queue_shown(page: Page, console: ConsoleServer) -> None:
    page.goto(MESSAGE)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    assert _awaited(console, "delete") == ("delete", "chasqui:payments", ID)
    expect(page.locator("h1")).to_have_text("chasqui:payments")


def _select(page: Page) -> None:
    page.goto("/dead-letters")
    page.locator("[data-group=g1]").check()
    page.locator("[data-group=g7]").check()
    expect(page.locator(".selection .many")).to_have_text("1,102 letters")


def test_a_dry_run_says_what_would_happen(page: Page, console: ConsoleServer) -> None:
    _select(page)
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".confirm")).to_contain_text("1,102 would run again.")
    expect(page.locator(".confirm")).to_contain_text("The cause is still there")
    assert not _did(console, "replay")


def test_letters_are_replayed_at_a_rate_with_some_ahead(page: Page, console: ConsoleServer) -> None:
    _select(page)
    page.get_by_role("button", name="Replay…", exact=True).click()
    page.get_by_label("Letters per second").fill("10")
    expect(page.locator(".confirm")).to_contain_text("1 m 50 s in all")
    expect(page.locator(".confirm")).to_contain_text("Send 12 ahead")
    page.get_by_role("button", name="Replay 1,102").click()
    expect(page.locator(".toast")).to_contain_text("Replayed 1,102 letters")
    assert _awaited(console, "replay") == ("replay", "sel-1", 10.0, 12)


def test_letters_are_deleted_once_the_count_is_typed_and_that_is_undone(
    page: Page, console: ConsoleServer
) -> None:
    _select(page)
    page.get_by_role("button", name="Delete…").click()
    act = page.get_by_role("button", name="Delete 1,102")
    expect(act).to_be_disabled()
    page.locator(".confirm input").fill("1102")
    act.click()
    assert _awaited(console, "discard") == ("discard", "sel-1", 1102)
    expect(page.locator(".toast")).to_contain_text("Deleted 1,102 letters")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    assert _awaited(console, "undo") == ("undo", "op-delete")
    expect(page.locator(".toast")).to_contain_text("Undone")


def test_one_letter_is_edited_and_replayed(page: Page, console: ConsoleServer) -> None:
    page.goto("/dead-letters")
    page.locator("[data-letter]").first.check()
    expect(page.locator(".selection .many")).to_have_text("1 letter")
    page.get_by_role("button", name="Edit and replay…").click()
    body = page.get_by_label("The new body")
    expect(body).to_have_value(re.compile(r'"order": 2'))
    body.fill('{"order": 3}')
    page.get_by_role("button", name="Replay it").click()
    call = _awaited(console, "edit_and_replay")
    assert call == ("edit_and_replay", "sel-1", '{"order": 3}', "json")


def test_a_reason_selects_all_its_kinds(page: Page) -> None:
    page.goto("/dead-letters")
    page.get_by_label("Select unrecoverable").check()
    expect(page.locator(".selection .many")).to_have_text("133 letters")
    expect(page.locator("[data-group=g3]")).to_be_checked()
    page.locator("[data-group=g3]").uncheck()
    expect(page.locator(".selection .many")).to_have_text("17 letters")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".selection")).to_be_hidden()


def test_a_schedule_is_run_and_skipped(page: Page, console: ConsoleServer) -> None:
    page.goto("/schedules")
    page.get_by_role("button", name="Run now").last.click()
    assert _awaited(console, "run_schedule") == ("run_schedule", "chasqui:payments", "reconcile")
    page.get_by_role("button", name="Skip next…").first.click()
    page.get_by_role("button", name="Skip one fire").click()
    assert _awaited(console, "skip_schedule") == ("skip_schedule", "chasqui:payments", "settle")


def test_a_job_is_sent_with_its_options(page: Page, console: ConsoleServer) -> None:
    page.goto("/send?q=chasqui%3Amail")
    page.get_by_label("Name", exact=True).fill("welcome")
    page.get_by_label("Body").fill('{"to": "ada@example.com"}')
    page.get_by_label("Delay").fill("1.5")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".note.good")).to_contain_text("Did send to chasqui:mail.")
    expect(page.get_by_role("link", name="Open it")).to_be_visible()
    sent = _awaited(console, "send")
    assert sent[1:4] == ("chasqui:mail", '{"to": "ada@example.com"}', "json")
    assert (sent[4]["name"], sent[4]["delay_s"]) == ("welcome", 1.5)


def test_a_refusal_is_shown_in_place_in_the_servers_words(
    page: Page, console: ConsoleServer
) -> None:
    page.goto("/send")
    page.get_by_label("Queue", exact=True).fill("nothing")
    page.get_by_label("Body").fill("x")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("form .note.bad")).to_contain_text("colon and the name")
    assert not _did(console, "send")
