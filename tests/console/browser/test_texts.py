"""Texts of others and times, in a browser: nothing is unseen, cut without a trace, or ambiguous."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tambomq.console.model import Trouble
from tests.console.browser import canned
from tests.console.browser.chromium import opened
from tests.console.browser.serving import ConsoleServer

pytestmark = pytest.mark.slow

MESSAGE = "/message?q=chasqui%3Apayments&id=01M7JGXBNGCBFD438G3QEGWJ00"


def test_control_and_bidi_characters_of_a_name_are_escaped(
    page: Page, console: ConsoleServer
) -> None:
    console.stand_in.rows = canned.hostile()
    console.stand_in.body = "a\u202eb\x1b[31mc\td\ne"
    page.goto("/")
    names = page.locator(".queue-name")
    expect(names.filter(has_text="binary")).to_have_text("binary\\x1b[31m\ufffd\\x07")
    expect(names.filter(has_text="תור")).to_have_text("\\u202eתור\\u202c حساب")
    page.goto(MESSAGE)
    page.get_by_role("tab", name="Text").click()
    expect(page.locator(".body pre")).to_have_text("a\\u202eb\\x1b[31mc\td\ne")


def test_a_line_end_in_a_name_makes_no_second_line(page: Page, console: ConsoleServer) -> None:
    console.stand_in.rows = [canned.named("chasqui", "two\nlines\tlong")]
    page.goto("/")
    expect(page.locator(".queue-name")).to_have_text("two\\nlines\\tlong")


@pytest.mark.parametrize("width", [390, 1100, 1280, 1680])
def test_a_long_name_is_cut_and_its_badge_is_not(
    page: Page, console: ConsoleServer, width: int
) -> None:
    trouble = Trouble(kind="dead letters", severity="red", why="12 messages died.")
    console.stand_in.rows = [canned.named("chasqui", "x" * 300, trouble=trouble)]
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/")
    badge = page.locator("tr.row .badge")
    expect(badge).to_have_text("dead letters")
    cell = page.locator("tr.row .name").bounding_box()
    box = badge.bounding_box()
    assert cell is not None
    assert box is not None
    assert box["x"] + box["width"] <= cell["x"] + cell["width"]
    overflows = "card => card.querySelector('table').offsetWidth > card.clientWidth"
    assert not page.locator(".card.queues").evaluate(overflows)


def test_only_what_shows_the_trouble_has_its_colour(page: Page, console: ConsoleServer) -> None:
    trouble = Trouble(kind="dead letters", severity="red", why="12 messages died.")
    row = canned.named("rsmq", "orders", trouble=trouble, dead=12, oldest_s=0.14, grows_per_s=0.2)
    console.stand_in.rows = [row]
    page.goto("/")
    expect(page.locator("tr.row .alarm")).to_have_text(["12"])


def test_all_times_of_a_message_are_those_of_this_place(
    browser: Browser, console: ConsoleServer
) -> None:
    with opened(browser, console.url, timezone_id="Asia/Tokyo") as page:
        page.goto(MESSAGE)
        due = page.locator(".why-box tr.now time")
        expect(due).to_have_text("2030-02-01 01:10")
        expect(due).to_have_attribute("title", "2030-01-31 16:10:32.104 UTC")


def test_old_numbers_are_not_called_live(page: Page, console: ConsoleServer) -> None:
    page.goto("/")
    lamp = page.locator(".tools .lamp")
    expect(lamp).to_have_text("Live, 2 s")
    console.stand_in.lost = True
    expect(lamp).to_have_text(re.compile(r"^As of \d\d:\d\d:\d\d$"))
    console.stand_in.lost = False
    expect(lamp).to_have_text("Live, 2 s")
