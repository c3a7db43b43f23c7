"""One browser and one console over made-up data for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.console.browser.chromium import chromium, opened
from tests.console.browser.serving import ConsoleServer
from tests.pipeline.browser import found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; shared, since it takes a second to start."""
    path = found()
    if path is None:
        pytest.skip("no browser: run scripts/install-chromium")
    with chromium(path) as started:
        yield started


@pytest.fixture(scope="module")
def shared_console() -> Iterator[ConsoleServer]:
    server = ConsoleServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def console(shared_console: ConsoleServer) -> ConsoleServer:
    """A console that nobody has to log in to, as if new."""
    shared_console.stand_in.reset()
    return shared_console


@pytest.fixture
def page(browser: Browser, console: ConsoleServer) -> Iterator[Page]:
    with opened(browser, console.url, viewport={"width": 1280, "height": 900}) as shown:
        yield shown
