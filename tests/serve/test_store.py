from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.errors import EmbeddedError, StoreRefused, StoreUnavailable
from tambomq.serve import store
from tambomq.settings.load import ServerSettings
from tests.serve.components import numbers, opened
from tests.serve.processes import ask, server_pid
from tests.servers import Server, binaries, eventually_async


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.EmbeddedStore:
    monkeypatch.setattr(store, "_FIRST_PAUSE_S", 0.001)
    return store.EmbeddedStore(ServerSettings(data_dir=tmp_path, redis_port=0))


def test_server_that_keeps_dying_is_given_up(
    component: store.EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await component.start()
        url = component.endpoints[0].address
        watch = asyncio.create_task(component.watch())
        try:
            for _ in range(store.RESTARTS_A_MINUTE + 1):
                await kill_server(url, watch)
            with pytest.raises(EmbeddedError, match="given up after the server failed 6 times"):
                await asyncio.wait_for(watch, 60)
        finally:
            await component.stop()

    asyncio.run(scenario())
    assert caplog.text.count("starting the server again") == store.RESTARTS_A_MINUTE


async def kill_server(url: str, watch: asyncio.Task[None]) -> None:
    """Kill the server and wait until another is there, or its component has given up."""
    pid = server_pid(url)
    os.kill(pid, signal.SIGKILL)
    await eventually_async(lambda: watch.done() or answers(url, pid))


def answers(url: str, other_than: int) -> bool:
    try:
        return server_pid(url) != other_than and ask(url, "PING") == b"PONG"
    except OSError:
        return False


def test_the_progress_of_loading_is_logged(
    component: store.EmbeddedStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(store, "_LOG_EVERY_S", 0)
    monkeypatch.setattr(component._server, "starting", lambda: iter([0.0, 41.7]))
    with caplog.at_level(logging.INFO):
        asyncio.run(component.start())
    assert "loading the data: 42 %" in caplog.text


@pytest.fixture
def given() -> Iterator[Server]:
    with Server(binaries.valkey(), password="right") as server:
        yield server


async def test_given_server_must_be_there_and_let_us_in(given: Server) -> None:
    async with opened(store.ExternalStore(given.url)):
        pass
    for url, error in (
        (given.url.replace("right", "wrong"), StoreRefused),
        ("redis://127.0.0.1:1", StoreUnavailable),
    ):
        component = store.ExternalStore(url)
        with pytest.raises(error):
            await component.start()
        await component.stop()


async def test_a_check_reports_whether_the_server_answers_now(given: Server) -> None:
    component = store.ExternalStore(given.url)
    async with opened(component):
        await component.check()
        given.kill()
        with pytest.raises(StoreUnavailable):
            await component.check()
        given.restart()
        await component.check()


async def test_restarts_of_the_embedded_server_are_counted(component: store.EmbeddedStore) -> None:
    async with opened(component):
        await component.check()
        assert numbers(await component.metrics()) == {("restarts",): 0}
        pid = server_pid(component.url)
        os.kill(pid, signal.SIGKILL)
        await eventually_async(lambda: answers(component.url, pid))
        await eventually_async(lambda: component._restarts == 1)
        await component.check()
        assert numbers(await component.metrics()) == {("restarts",): 1}


def test_settings_choose_the_component(tmp_path: Path) -> None:
    assert isinstance(
        store.store_component(ServerSettings(redis_url="redis://h")), store.ExternalStore
    )
    assert isinstance(store.store_component(ServerSettings(data_dir=tmp_path)), store.EmbeddedStore)
