from __future__ import annotations

import pytest

from tambomq.work.supervisor.restarts import (
    LONGEST_PAUSE_S,
    WORKED_S,
    RestartBackoff,
    describe_end,
)


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
