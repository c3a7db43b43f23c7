"""Joining the consumer group: a worker says what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from tambomq.chasqui import Job, Worker
from tambomq.chasqui.worker import consumer_group
from tests.servers import eventually_async


async def test_a_worker_says_soon_that_it_finds_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_group, "NOTICE_AFTER_S", 0.01)

    async def handler(_: Job) -> None: ...

    # Nobody listens on port 1.
    worker = Worker("q", handler, redis_url="redis://:secret@127.0.0.1:1")
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: "cannot join queue 'q' yet: no answer from" in caplog.text)
    assert "127.0.0.1:1" in caplog.text
    assert "secret" not in caplog.text
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
