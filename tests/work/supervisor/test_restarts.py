from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from tambomq.work.options import WorkOptions
from tambomq.work.supervisor.reaper import ProcessReaper
from tambomq.work.supervisor.restarts import (
    LONGEST_PAUSE_S,
    WORKED_S,
    RestartBackoff,
    describe_end,
)
from tambomq.work.supervisor.slot import ProcessSlot
from tambomq.work.supervisor.worker_child import WorkerChild


def test_pauses_grow_until_a_process_has_worked() -> None:
    backoff = RestartBackoff()
    assert [backoff.pause_s(1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, LONGEST_PAUSE_S]
    assert backoff.pause_s(WORKED_S) == 0
    assert backoff.pause_s(1) == 0
    assert backoff.pause_s(1) == 0.5
    backoff.reset()
    assert backoff.pause_s(1) == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-11, "was killed by SIGSEGV"),
        (-9, "was killed by SIGKILL, by the kernel if memory ran out"),
        (-126, "was killed by signal 126"),
    ],
)
def test_an_exit_is_described_by_its_code_or_signal(code: int, text: str) -> None:
    assert describe_end(code) == text


async def test_a_process_that_the_system_cannot_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing(*_: object) -> None: ...

    def start(*_: object) -> Any:
        if slot.restarts["failed"] == 2:
            slot.stop()
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(WorkerChild, "start", start)
    slot = ProcessSlot(1, WorkOptions(targets=("app",)), ProcessReaper(), nothing, nothing)
    with caplog.at_level(logging.ERROR):
        await slot.keep()
    said = [record.message for record in caplog.records]
    failed = "process 1 cannot be started: no more processes; restarting"
    assert said == [f"{failed} now", f"{failed} in 0.5 s", f"{failed} in 1 s"]
    assert slot.state == "is stopped"
