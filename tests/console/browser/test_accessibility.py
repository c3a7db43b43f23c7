"""axe-core on every page of the console, in light and dark: nothing serious."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.browser.chromium import opened
from tests.console.browser.serving import ConsoleServer
from tests.console.browser.test_pages import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.interop]

AXE = Path(__file__).parents[2] / "peers/axe/node_modules/axe-core/axe.min.js"
RUN = """axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
  .then((found) => found.violations)"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is missing: run make peers")
    return AXE.read_text()


def serious(page: Page, axe: str) -> list[str]:
    """Return what axe finds, with the elements."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate(RUN)
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.partition("?")[0])
def test_a_page_has_no_serious_barrier(
    browser: Browser, console: ConsoleServer, axe: str, path: str
) -> None:
    # A colour that is still on its way from light to dark has too little contrast.
    with opened(browser, console.url, color_scheme="light", reduced_motion="reduce") as page:
        page.goto(path)
        expect(page.locator("main")).to_contain_text(PAGES[path])
        assert serious(page, axe) == []
        page.emulate_media(color_scheme="dark")
        assert serious(page, axe) == []


def test_a_confirmation_has_no_serious_barrier(
    browser: Browser, console: ConsoleServer, axe: str
) -> None:
    # High enough that the selection, which stays in sight, covers nothing.
    with opened(browser, console.url, viewport={"width": 1280, "height": 1600}) as page:
        page.goto("/dead-letters")
        page.locator("[data-group=g1]").check()
        page.get_by_role("button", name="Delete…").click()
        expect(page.locator(".confirm")).to_be_visible()
        assert serious(page, axe) == []


def test_a_lost_redis_has_no_serious_barrier(
    browser: Browser, console: ConsoleServer, axe: str
) -> None:
    console.stand_in.lost = True
    with opened(browser, console.url) as page:
        page.goto("/")
        expect(page.locator("#alerts")).to_contain_text("Redis does not answer")
        assert serious(page, axe) == []
