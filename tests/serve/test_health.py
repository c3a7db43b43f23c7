from __future__ import annotations

import asyncio

import pytest

from tambomq.serve import health as module
from tambomq.serve.health import ComponentStatus, ProcessHealth
from tests.serve.components import Recorded


def watched(*components: Recorded, opened: int | None = None) -> ProcessHealth:
    health = ProcessHealth()
    health.expect(components)
    for component in components[:opened]:
        health.started(component)
    return health


async def test_a_component_serves_if_its_check_returns() -> None:
    health = watched(Recorded("a"), Recorded("b", fails="check"))
    assert await health.look() == {
        "a": ComponentStatus(ok=True),
        "b": ComponentStatus(ok=False, why="b cannot check redis://:***@h"),
    }


async def test_a_component_that_is_not_open_is_not_asked() -> None:
    first, second = Recorded("a"), Recorded("b")
    health = watched(first, second, opened=1)
    assert (await health.look())["b"] == ComponentStatus(ok=False, why="is not started yet")
    health.started(second)
    assert (await health.look())["b"].ok
    health.stopped(second)
    assert await health.look() == {
        "a": ComponentStatus(ok=True),
        "b": ComponentStatus(ok=False, why="is stopped"),
    }


async def test_a_hanging_check_times_out_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECK_WITHIN_S", 0.05)
    health = watched(Recorded("a", fails="hang"), Recorded("b"))
    found = await health.look()
    assert found["a"] == ComponentStatus(ok=False, why="no answer within 0.05 s")
    assert found["b"].ok


async def test_an_unexpected_error_of_a_check_is_unhealthy_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def surprise() -> None:
        raise KeyError("oh")

    component = Recorded("a")
    monkeypatch.setattr(component, "check", surprise)
    assert (await watched(component).look())["a"] == ComponentStatus(ok=False, why="KeyError: 'oh'")
    assert "the check of a failed" in caplog.text


async def test_concurrent_callers_share_one_check() -> None:
    component = Recorded("a")
    health = watched(component)
    await asyncio.gather(*(health.look() for _ in range(20)))
    await health.look()
    assert component.checks == 1


async def test_it_is_ready_from_the_last_component_to_the_first_signal() -> None:
    health = watched(Recorded("a"))
    assert not health.ready
    health.serving()
    assert health.ready
    health.stopping()
    assert not health.ready
