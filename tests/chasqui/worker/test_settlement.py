"""Settlements that are refused, unanswered or disturbed are kept apart, and no entry leaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from tambomq.chasqui.worker.settler import MAX_ROUND_TRIPS
from tambomq.errors import StoreError, StoreRefused
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome
from tests.chasqui.worker.test_settler import (
    SettlerHarness,
    StubStore,
    is_settle,
    succeed,
    unreachable,
)
from tests.servers import eventually_async


@pytest.fixture
async def harness() -> AsyncIterator[SettlerHarness]:
    made = SettlerHarness()
    yield made
    made.settler.cancel()


# ── refusals ─────────────────────────────────────────────────────────────────


class ForbiddingStore(StubStore):
    """Refuses calls whose first argument is forbidden, as an ACL does by their keys."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden: set[str] = set()

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        answers = await super().outcomes(calls)
        return [
            StoreRefused("NOPERM no access") if call.args[0] in self.forbidden else answer
            for call, answer in zip(calls, answers, strict=True)
        ]


async def test_refused_settlements_are_logged_and_kept_and_block_no_others(
    harness: SettlerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    store = ForbiddingStore()
    harness.settler._store = cast("AsyncStore", store)
    store.forbidden = {f"no {n}" for n in range(MAX_ROUND_TRIPS + 1)}
    for entry in store.forbidden:
        harness.settler.submit(harness.settlement(entry))
        await eventually_async(lambda: not harness.settler._flush_scheduled)
    await eventually_async(lambda: harness.settler.is_refused)
    harness.end("allowed")
    harness.settler.submit(harness.settlement("too"))
    await eventually_async(lambda: harness.stats.completed == harness.stats.retried == 1)
    assert set(harness.in_flight.entries) == store.forbidden
    assert harness.settler.unsettled == len(store.forbidden)
    assert "refuses to settle" in caplog.text
    assert "NOPERM" in caplog.text
    store.forbidden = set()
    await asyncio.wait_for(harness.settler.drain(), 60)
    assert (harness.stats.retried, harness.stats.lost) == (MAX_ROUND_TRIPS + 2, 0)
    assert (harness.in_flight.entries, harness.settler.unsettled) == ({}, 0)
    assert not harness.settler.is_refused


async def test_nothing_refused_is_repeated_after_cancel(harness: SettlerHarness) -> None:
    harness.store.replies = [lambda _: StoreRefused("NOPERM")] * 2
    harness.end("1")
    await eventually_async(lambda: harness.settler.is_refused)
    harness.settler.cancel()
    await eventually_async(lambda: not harness.settler.is_refused)
    assert len(harness.store.round_trips) == 1
    assert set(harness.in_flight.entries) == {"1"}


async def test_a_refused_settlement_without_a_fallback_is_not_done(
    harness: SettlerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    harness.store.replies = [lambda _: "another leads"] * 2
    instead = Call("PING", (), ("instead",), bool)
    for entry, fallback in (("1", None), ("2", lambda: instead)):
        harness.settler.submit(
            harness.settlement(entry, fallback=fallback, on_done=lambda e=entry: done.append(e))
        )
    await harness.settler.drain()
    assert (harness.stats.retried, harness.stats.lost, done) == (0, 2, [])
    assert [each.levelname for each in caplog.records].count("ERROR") == 2


# ── errors that are not the server's ─────────────────────────────────────────


async def test_only_what_has_no_answer_is_sent_again(harness: SettlerHarness) -> None:
    harness.store.replies = [lambda call: succeed(call) if is_settle(call) else unreachable(call)]
    harness.settler.started("job 1", "", 1)
    harness.end("1")
    harness.settler.submit(harness.settlement("2"))
    await harness.settler.drain()
    assert [len(calls) for calls in harness.store.round_trips] == [2, 1]
    assert not is_settle(harness.store.round_trips[1][0])
    assert (harness.stats.completed, harness.stats.retried) == (1, 1)


async def test_a_log_filter_that_raises_keeps_no_entry_in_flight(
    harness: SettlerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("a log filter of the user")

    log = logging.getLogger("tambomq.chasqui.worker.settler")
    harness.cancelled = {"3": "not needed"}
    harness.store.replies = [lambda call: ["2", "3"] if is_settle(call) else StoreError("no")]
    harness.end("1", "2", "3")
    harness.settler.submit(harness.settlement("4"))
    with monkeypatch.context() as patched:
        patched.setattr(log, "filters", [broken])
        with suppress(RuntimeError):
            await harness.settler._send(harness.settler._next_batch())
    assert (harness.in_flight.entries, harness.settler.unsettled) == ({}, 0)
    assert (harness.stats.completed, harness.stats.lost, harness.stats.cancelled) == (1, 2, 1)
    ended = {each.id: each.outcome for each in harness.recorder.ended}
    assert ended == {"job 1": "completed", "job 2": "lost", "job 3": "cancelled"}


async def test_a_log_filter_that_raises_keeps_no_job_from_being_settled(
    harness: SettlerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("a log filter of the user")

    monkeypatch.setattr(logging.getLogger("tambomq.chasqui.worker.settler"), "filters", [broken])
    monkeypatch.setattr("tambomq.chasqui.worker.settler.MAX_BATCH_JOBS", 1)
    refused = [lambda _: StoreRefused("NOPERM")] * 3
    harness.store.replies = [unreachable, *refused, lambda _: StoreError("no")]
    harness.end("1")
    for entry in ("2", "3"):
        harness.settler.submit(harness.settlement(entry))
    await asyncio.wait_for(harness.settler.drain(), 60)
    assert (harness.in_flight.entries, harness.settler.unsettled) == ({}, 0)
    assert harness.stats.lost == 1


async def test_what_a_credential_provider_raises_loses_no_settlement(
    harness: SettlerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = harness.store.outcomes

    async def once_without_token(_: Sequence[Call[Any]]) -> list[Outcome]:
        monkeypatch.setattr(harness.store, "outcomes", outcomes)
        raise RuntimeError("no token today")

    monkeypatch.setattr(harness.store, "outcomes", once_without_token)
    harness.end("1")
    await harness.settler.drain()
    assert (harness.stats.completed, harness.in_flight.entries) == (1, {})
