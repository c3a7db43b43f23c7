"""Who may do what in the console of a real `tambo serve`, and what it shows without its servers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tambomq.chasqui import BlockingQueue
from tests.console.browser.buried import bury
from tests.console.browser.chromium import opened
from tests.serve.processes import Serving, serving
from tests.servers import Server, binaries

pytestmark = pytest.mark.slow

QUEUE = "/queue?q=chasqui%3Apayments"


def _fill(url: str) -> None:
    """Add three jobs to the queue of this module."""
    with BlockingQueue("payments", redis_url=url) as queue:
        queue.add_bulk([{"name": "charge", "data": n} for n in range(3)])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    tokens = ("--http-token=opens-all", "--http-viewer-token=only-looks")
    with serving(tmp_path_factory.mktemp("guarded"), *tokens) as served:
        _fill(served.url)
        with BlockingQueue("refunds", redis_url=served.url) as queue:
            bury(queue, served.url, 1)
        yield served


@pytest.fixture
def guarded_page(browser: Browser, guarded: Serving) -> Iterator[Page]:
    with opened(browser, guarded.address("http")) as page:
        yield page


def _log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_log_in_leads_to_the_page_that_was_asked_for(guarded_page: Page) -> None:
    guarded_page.goto(QUEUE)
    expect(guarded_page.get_by_label("Token")).to_be_focused()
    _log_in(guarded_page, "wrong")
    expect(guarded_page.locator(".note.bad")).to_contain_text("The token is not valid.")
    _log_in(guarded_page, "opens-all")
    expect(guarded_page.locator("h1")).to_have_text("chasqui:payments")
    expect(guarded_page.locator(".who")).to_contain_text("operator")
    expect(guarded_page.get_by_role("button", name="Purge…")).to_be_enabled()
    guarded_page.get_by_role("button", name="Log out").click()
    expect(guarded_page.get_by_label("Token")).to_be_visible()
    guarded_page.goto("/")
    expect(guarded_page.get_by_label("Token")).to_be_visible()


def test_after_a_log_out_nothing_of_the_session_is_left_on_the_page(guarded_page: Page) -> None:
    guarded_page.goto("/")
    _log_in(guarded_page, "opens-all")
    expect(guarded_page.locator("tr.row")).to_have_count(2)
    guarded_page.get_by_role("button", name="Log out").click()
    expect(guarded_page.get_by_label("Token")).to_be_visible()
    expect(guarded_page.locator("#bar nav")).to_have_count(0)
    expect(guarded_page.locator(".who")).to_have_count(0)
    # A tab that is looked at again has nobody to update it for.
    with guarded_page.expect_event("console", lambda said: said.text == "looked"):
        guarded_page.evaluate(
            """async () => {
                 document.dispatchEvent(new Event("visibilitychange"));
                 await fetch("/api/v1/session");
                 await fetch("/api/v1/session");
                 console.info("looked");
               }"""
        )
    assert guarded_page.locator("#alerts").inner_text() == ""
    left = (
        "(await import(document.querySelector('script[type=module]').src.replace('main', 'live')))"
    )
    assert guarded_page.evaluate(f"async () => {left}.live.overview") is None


def test_a_viewer_sees_no_actions(guarded_page: Page) -> None:
    guarded_page.goto("/")
    _log_in(guarded_page, "only-looks")
    expect(guarded_page.locator(".who")).to_contain_text("viewer")
    expect(guarded_page.get_by_role("link", name="Send", exact=True)).to_have_count(0)
    guarded_page.goto(QUEUE)
    expect(guarded_page.locator(".messages tr[data-row]")).to_have_count(3)
    expect(guarded_page.locator("button[data-act]")).to_have_count(0)
    expect(guarded_page.get_by_role("checkbox")).to_have_count(0)
    guarded_page.goto("/dead-letters")
    expect(guarded_page.locator(".shapes tr[data-row]")).to_have_count(1)
    expect(guarded_page.get_by_role("checkbox")).to_have_count(0)


@pytest.mark.parametrize(("token", "sends_secret"), [("opens-all", False), ("only-looks", True)])
def test_neither_a_forged_request_nor_a_viewer_may_act(
    guarded_page: Page, guarded: Serving, token: str, sends_secret: bool
) -> None:
    guarded_page.goto("/")
    _log_in(guarded_page, token)
    expect(guarded_page.locator(".who")).to_be_visible()
    status = guarded_page.evaluate(
        """async (sendsSecret) => {
             const { csrf } = await (await fetch("/api/v1/session")).json();
             const headers = { "Content-Type": "application/json" };
             if (sendsSecret) headers["X-Tambo-CSRF"] = csrf;
             const url = "/api/v1/queue/pause?queue=chasqui%3Apayments";
             return (await fetch(url, { method: "POST", headers, body: "{}" })).status;
           }""",
        sends_secret,
    )
    assert status == 403
    with BlockingQueue("payments", redis_url=guarded.url) as queue:
        assert not queue.is_paused()


def test_a_read_only_console_draws_no_actions(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path / "served", "--http-read-only") as served:
        _fill(served.url)
        with opened(browser, served.address("http")) as page:
            page.goto(QUEUE)
            expect(page.locator("h1")).to_have_text("chasqui:payments")
            expect(page.locator(".who")).to_contain_text("read-only")
            expect(page.locator(".messages tr[data-row]")).to_have_count(3)
            expect(page.locator("button[data-act]")).to_have_count(0)
            page.goto("/send")
            expect(page.locator(".note")).to_contain_text("You may look, but not send")


def test_without_redis_the_last_numbers_stay_and_actions_are_off(
    browser: Browser, tmp_path: Path
) -> None:
    with Server(binaries.valkey()) as redis:
        flags = ("--redis-url", redis.url)
        with (
            serving(tmp_path / "served", *flags) as served,
            opened(browser, served.address("http")) as page,
        ):
            _fill(redis.url)
            page.goto(QUEUE)
            expect(page.locator(".facts")).to_contain_text("3 jobs")
            redis.kill()
            alert = page.locator("#alerts")
            expect(alert).to_contain_text("Redis does not answer since")
            expect(page.get_by_role("button", name="Purge…")).to_be_disabled()
            expect(page.locator(".facts")).to_contain_text("3 jobs")
            redis.restart()
            _fill(redis.url)
            expect(alert).to_be_empty()
            expect(page.get_by_role("button", name="Purge…")).to_be_enabled()


def test_a_lost_server_is_shown_and_found_again(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    with serving(folder) as served:
        _fill(served.url)
        address = served.address("http")
        with opened(browser, address) as page:
            page.goto("/")
            row = page.locator("tr.row", has_text="payments")
            expect(row).to_be_visible()
            served.end(signal.SIGTERM)
            alert = page.locator("#alerts")
            expect(alert).to_contain_text("The console's server does not answer")
            expect(row).to_be_visible()
            with serving(folder, f"--http-port={urlsplit(address).port}") as again:
                assert again.address("http") == address
                page.get_by_role("button", name="Try now").click()
                expect(alert).to_be_empty()
                expect(row).to_be_visible()
