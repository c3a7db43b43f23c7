"""Each page of the console, in a browser, over made-up data."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tambomq.console.model import Trouble
from tests.console.browser import canned
from tests.console.browser.chromium import opened
from tests.console.browser.serving import ConsoleServer
from tests.servers import eventually

pytestmark = pytest.mark.slow

QUEUE = "/queue?q=chasqui%3Apayments"
MESSAGE = "/message?q=chasqui%3Apayments&id=01M7JGXBNGCBFD438G3QEGWJ00"
PAGES = {
    "/": "chasqui:payments",
    QUEUE: "Runs before dead",
    MESSAGE: "It waits for its 6th run",
    "/dead-letters": "HTTPStatusError: 503 from acquirer <id>",
    "/workers": "risk-3",
    "/schedules": "every 15 m",
    "/pipeline": "bronze",
    "/send": "Send a message",
    "/audit": "chasqui:newsletter",
    "/login": "Token",
}
ALL_PAGES = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.partition("?")[0])


@ALL_PAGES
def test_a_page_shows_its_data_and_fits_a_phone(
    page: Page, console: ConsoleServer, path: str
) -> None:
    console.stand_in.rows = [*canned.hostile(), *canned.queues()]
    console.stand_in.body = canned.SCRIPT * 500
    page.goto(path)
    expect(page.locator("main")).to_contain_text(PAGES[path])
    expect(page).to_have_title(re.compile("· TamboMQ$"))
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    page.set_viewport_size({"width": 390, "height": 844})
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth") == 390)


def test_trouble_stands_above_the_sort_and_says_why(page: Page) -> None:
    page.goto("/")
    names = page.locator("tr.row a[data-open]")
    expect(names.nth(0)).to_have_attribute("title", "chasqui:payments")
    expect(names.nth(1)).to_have_attribute("title", "gomq:price-ticks")
    expect(page.locator("tr.why").first).to_contain_text("96 % of its runs failed")
    page.get_by_role("button", name="Queue", exact=True).click()
    expect(names.nth(0)).to_have_attribute("title", "chasqui:payments")
    expect(names.nth(2)).to_have_attribute("title", "chasqui:invoices")


def test_queues_are_filtered_by_name_protocol_and_state(page: Page) -> None:
    page.goto("/")
    rows = page.locator("tr.row")
    expect(rows).to_have_count(12)
    page.get_by_placeholder("Filter by name").fill("mail")
    expect(rows).to_have_count(1)
    page.get_by_placeholder("Filter by name").fill("")
    page.get_by_role("button", name="GOMQ").click()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="All 12").click()
    page.get_by_role("button", name="Paused").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("newsletter")


def test_numbers_follow_the_queues_within_a_refresh(page: Page, console: ConsoleServer) -> None:
    page.goto("/")
    expect(page.locator("tr.row")).to_have_count(12)
    console.stand_in.rows = [canned.queues()[-1]]
    expect(page.locator("tr.row")).to_have_count(1)
    expect(page.locator("tr.row")).to_contain_text("chat")


def test_a_short_history_fills_its_width_and_says_how_long_it_is(
    page: Page, console: ConsoleServer
) -> None:
    console.stand_in.watched_for_s = 180
    fine: list[int | None] = [None] * 41 + list(range(19))
    console.stand_in.rows = [
        msgspec.structs.replace(row, backlog_fine=fine) for row in canned.queues()
    ]
    page.goto("/")
    expect(page.locator("th.c-backlog")).to_have_text("Backlog, 4 m")
    line = page.locator("tr.row .spark .line").first
    expect(line).to_have_attribute("d", re.compile(r"^M0\.0 "))
    expect(page.locator(".figures")).to_contain_text(re.compile(r"1,265 since \d\d:\d\d"))
    console.stand_in.watched_for_s = 7200
    console.stand_in.rows = canned.queues()
    expect(page.locator("th.c-backlog")).to_have_text("Backlog, 1 h")
    expect(page.locator(".figures")).to_contain_text("1,265 in the last hour")


def test_a_frozen_table_stays_as_it_is(page: Page, console: ConsoleServer) -> None:
    page.goto("/")
    expect(page.locator("tr.row")).to_have_count(12)
    page.get_by_role("button", name="Freeze").click()
    console.stand_in.rows = canned.queues()[:3]
    entered = page.locator(".figures dd").first
    before = entered.inner_text()
    expect(entered).not_to_have_text(before)
    expect(page.locator("tr.row")).to_have_count(12)
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("tr.row")).to_have_count(3)


def test_rows_do_not_change_places_under_the_pointer(page: Page, console: ConsoleServer) -> None:
    page.goto("/")
    names = page.locator("tr.row a[data-open]")
    expect(names.nth(2)).to_have_attribute("title", "chasqui:newsletter")
    page.locator("tr.row").nth(5).hover()
    rows = canned.queues()
    rows[2] = msgspec.structs.replace(rows[2], depth=1)
    console.stand_in.rows = rows
    expect(page.locator("tr.row .c-depth").nth(2)).to_have_text("1")
    expect(names.nth(2)).to_have_attribute("title", "chasqui:newsletter")
    page.mouse.move(5, 5)
    expect(names.nth(2)).to_have_attribute("title", "rsmq:legacy-import")


def test_columns_can_be_hidden_and_stay_hidden(page: Page) -> None:
    page.goto("/")
    head = page.get_by_role("columnheader", name="Size")
    expect(head).to_be_visible()
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Size").uncheck()
    expect(head).to_be_hidden()
    page.reload()
    expect(page.get_by_role("columnheader", name="Depth")).to_be_visible()
    expect(head).to_be_hidden()


def test_a_thousand_queues_are_drawn_as_they_come_into_sight(
    page: Page, console: ConsoleServer
) -> None:
    console.stand_in.rows = canned.thousand()
    page.goto("/")
    expect(page.locator(".foot").first).to_contain_text("1,000 of 1,000 queues")
    assert page.locator("tr.row").count() < 1000

    def to_the_end() -> bool:
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        return page.locator("tr.row").count() == 1000

    eventually(to_the_end)
    page.get_by_placeholder("Filter by name").fill("queue-0999")
    expect(page.locator("tr.row")).to_have_count(1)


def test_a_worker_that_holds_nothing_has_no_lease(page: Page) -> None:
    page.goto(QUEUE)
    idle = page.locator("tr", has_text="pay-4.prod").locator("td")
    expect(idle).to_have_text(["0 of 40", "–"])


def test_a_decimal_point_ends_no_sentence_of_the_timeline(page: Page) -> None:
    page.goto(MESSAGE)
    expect(page.locator(".timeline b").last).to_have_text("Delayed by 3.1 s")


def test_a_phone_shows_how_many_died_of_what(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/dead-letters")
    for table, column in ((".shapes", "Letters"), (".letters", "Died")):
        head = page.locator(f"{table} th", has_text=re.compile(f"^{column}$"))
        expect(head).to_be_visible()
        right = head.evaluate("cell => cell.getBoundingClientRect().right")
        assert right <= 390, table


def test_names_and_bodies_are_text_whatever_they_say(page: Page, console: ConsoleServer) -> None:
    console.stand_in.rows = canned.hostile()
    console.stand_in.body = canned.SCRIPT
    page.goto("/")
    expect(page.locator("tr.row")).to_have_count(4)
    expect(page.locator("main")).to_contain_text("<script>window.hacked=1</script>")
    page.goto(MESSAGE)
    expect(page.locator("pre").last).to_be_visible()
    expect(page.locator(".body pre")).to_contain_text(canned.SCRIPT)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0


def test_a_body_of_ten_mebibytes_is_shown_in_part(page: Page, console: ConsoleServer) -> None:
    console.stand_in.body = "א" + "x" * (10 << 20)
    page.goto(MESSAGE)
    shown = page.locator(".body pre")
    expect(shown).to_be_visible()
    assert len(shown.inner_text()) <= 20_000
    expect(page.get_by_role("button", name="Show all of it")).to_be_visible()


def test_no_queues_yet_says_what_to_try(page: Page, console: ConsoleServer) -> None:
    console.stand_in.rows = []
    page.goto("/")
    expect(page.locator("main")).to_contain_text("No queues yet")
    expect(page.locator("main")).to_contain_text("tambo demo")
    console.stand_in.rows = canned.queues()
    expect(page.locator("tr.row")).to_have_count(12)


def test_no_queues_yet_says_where_to_send_the_first_message(
    page: Page, console: ConsoleServer
) -> None:
    console.stand_in.rows = []
    page.goto("/")
    places = page.locator(".blank .places")
    expect(places).to_contain_text("RSMQredis://")
    expect(places).to_contain_text("ChasquiMQredis://")
    # This server knows of no endpoints, as a console beside another Redis.
    expect(places).to_contain_text("GOMQnot served by this process")
    expect(places).to_contain_text("KqueueMsgQnot served by this process")
    assert "Everything is open" not in page.locator(".blank").inner_text()
    served = {
        "gomq": {"address": "0.0.0.0:10001", "about": "GOMQ", "try": "tambo gomq publish"},
        "kqueue": {"address": "[::]:8000", "about": "KqueueMsgQ", "try": "tambo kqueue --tls"},
    }
    page.route("**/endpoints", lambda route: route.fulfill(json={"endpoints": served}))
    page.reload()
    expect(places).to_contain_text("GOMQ127.0.0.1:10001")
    expect(places).to_contain_text("KqueueMsgQ127.0.0.1:8000, with TLS")
    expect(page.locator(".blank")).to_contain_text("Everything is open")
    expect(page.locator(".blank")).not_to_contain_text("--kqueue-address")


def test_a_viewer_is_not_asked_to_send_where_nothing_is(page: Page, console: ConsoleServer) -> None:
    console.stand_in.rows = []
    page.goto("/")
    expect(page.locator(".blank").get_by_role("link", name="Send a message")).to_be_visible()
    viewer = {"user": "ada", "role": "viewer", "csrf": "", "read_only": False, "needs_login": False}
    page.route("**/api/v1/session", lambda route: route.fulfill(json=viewer))
    page.reload()
    expect(page.locator(".blank").get_by_role("link", name="Workers and peers")).to_be_visible()
    expect(page.get_by_role("link", name="Send a message")).to_have_count(0)


def test_a_schedule_that_is_overdue_is_due_now(page: Page) -> None:
    page.clock.install()
    page.goto("/schedules")
    due = page.locator("tr[data-row]", has_text="every 15 m").locator("time").first
    expect(due).to_contain_text("in 6")
    due.hover()  # meanwhile the page reads nothing anew
    page.clock.fast_forward(700_000)
    expect(due).to_have_text("now")


def test_reasons_are_charted_in_the_same_order_whatever_died_last(page: Page) -> None:
    seen = []
    for reverse in (False, True):

        def answer(route: Route, *, reverse: bool = reverse) -> None:
            summary = route.fetch().json()
            values = sorted(summary["per_minute"]["values"].items(), reverse=reverse)
            summary["per_minute"]["values"] = dict(values)
            route.fulfill(json=summary)

        page.route("**/api/v1/dead-letters", answer)
        page.goto("/dead-letters")
        legend = page.locator(".legend")
        expect(legend).to_contain_text("retries exhausted")
        seen.append(legend.inner_text())
        page.unroute("**/api/v1/dead-letters")
    assert seen[0] == seen[1]


def test_notes_about_peers_do_not_make_rows_tall_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/workers")
    row = page.locator("tr", has_text="What it holds").first
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 100


def test_an_unknown_queue_is_said_in_the_servers_words(page: Page) -> None:
    page.goto("/queue?q=rsmq%3Anowhere")
    expect(page.locator(".blank")).to_contain_text("Queue 'rsmq:nowhere' does not exist.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.get_by_role("link", name="All queues").click()
    expect(page.locator("tr.row")).to_have_count(12)
    page.goto("/queue")
    expect(page.locator("tr.row")).to_have_count(12)


def test_messages_are_searched_by_time(page: Page, console: ConsoleServer) -> None:
    page.goto(f"{QUEUE}&state=delayed")
    page.get_by_placeholder("Id, name or error text").fill("acquirer")
    page.get_by_label("Added or ended").select_option("In the last hour")
    wanted = ("list", "chasqui:payments", "delayed", None, "acquirer since:1h")
    eventually(lambda: wanted in console.stand_in.calls)
    expect(page.locator(".messages .foot")).to_contain_text("the search stopped there")


@pytest.mark.parametrize(
    ("queue", "actions"),
    [("chasqui:payments", ["Cancel…"]), ("rsmq:orders", ["Delete…"]), ("gomq:price-ticks", [])],
)
def test_a_list_offers_what_its_protocol_can_do(page: Page, queue: str, actions: list[str]) -> None:
    page.goto(f"/queue?q={quote(queue)}&state=visible")
    expect(page.locator(".messages tr[data-row]")).to_have_count(20)
    offered = page.locator(".messages .tools button")
    assert offered.all_inner_texts() == actions


def test_a_queue_with_dead_letters_in_trouble_shows_them_first(
    page: Page, console: ConsoleServer
) -> None:
    [row] = [row for row in canned.queues() if row.queue == "chasqui:payments"]
    died = Trouble(kind="dead letters", severity="red", why="9 died.", link="dead_letters")
    console.stand_in.rows = [msgspec.structs.replace(row, trouble=died)]
    page.goto(QUEUE)
    expect(page.locator(".tabs [aria-current]")).to_contain_text("Dead")
    page.get_by_role("link", name="Replay or delete…").click()
    expect(page.locator("h1")).to_have_text("Dead letters")


def test_the_theme_follows_the_system_until_one_is_chosen(
    browser: Browser, console: ConsoleServer
) -> None:
    surface = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, console.url, color_scheme="dark") as page:
        page.goto("/")
        expect(page.get_by_role("button", name="Switch to light")).to_be_visible()
        assert page.evaluate(surface) == "rgb(15, 20, 28)"
        page.get_by_role("button", name="Switch to light").click()
        page.reload()
        expect(page.get_by_role("button", name="Switch to dark")).to_be_visible()
        assert page.evaluate(surface) == "rgb(246, 247, 249)"


def test_all_can_be_reached_with_keys(page: Page) -> None:
    page.goto("/")
    expect(page.locator("tr.row")).to_have_count(12)
    page.keyboard.press("f")
    expect(page.get_by_placeholder("Filter by name")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("chasqui:payments")
    expect(page.locator(".messages tr[data-row]")).to_have_count(20)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".headline")).to_contain_text("It waits for its 6th run")
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("chasqui:payments")
    page.keyboard.press("Escape")
    expect(page.locator("tr.row")).to_have_count(12)
    page.keyboard.press("/")
    page.keyboard.type("invoi")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("chasqui:invoices")


def test_messages_are_paged_and_a_cut_off_search_says_so(
    page: Page, console: ConsoleServer
) -> None:
    page.goto(f"{QUEUE}&state=delayed")
    expect(page.locator(".messages .foot")).to_contain_text("The first 20 of 11,906")
    page.get_by_role("button", name="Next 50").click()
    expect(page.locator(".messages .foot")).to_contain_text("20 more of 11,906")
    assert ("list", "chasqui:payments", "delayed", "50", "") in console.stand_in.calls
    page.get_by_placeholder("Id, name or error text").fill("503")
    expect(page.locator(".messages .foot")).to_contain_text("among 10,000: the search stopped")
    expect(page.get_by_role("button", name="Go on searching")).to_be_visible()


def test_a_page_that_could_not_be_read_is_read_again_by_itself(page: Page) -> None:
    tries: list[str] = []

    def away_at_first(route: Route) -> None:
        tries.append(route.request.url)
        if len(tries) > 1:
            route.continue_()
        else:
            route.fulfill(status=503, json={"kind": "redis", "title": "Redis does not answer."})

    page.route("**/api/v1/queue?*", away_at_first)
    page.goto(QUEUE)
    expect(page.locator("h1")).to_have_text("chasqui:payments")
    assert len(tries) > 1
