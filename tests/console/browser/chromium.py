"""Debian's Chromium, driven by Playwright, and the flags that keep it from calling home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS: Final = 40_000
"""How long a page may take to show something on a busy machine."""

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """Provide a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, base_url: str, **options: object) -> Iterator[Page]:
    """Provide a page. What its script throws or the policy forbids fails the test."""
    context = browser.new_context(base_url=base_url, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said.text) else None)
    yield page
    context.close()
    assert not wrong


def _is_wrong(text: str) -> bool:
    return "Content Security Policy" in text or "Uncaught" in text
