"""Work that is killed with -9 between two round trips to Redis, in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tambomq.store.call import Call, Outcome
from tambomq.store.sync import Store


def dies_after(round_trips: int, work: Callable[[], object]) -> bool:
    """Do *work* in a process that is killed after *round_trips*; false if it ended before."""
    pid = os.fork()
    if pid == 0:
        _work(round_trips, work)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _work(round_trips: int, work: Callable[[], object]) -> None:
    code = 1
    try:
        made, outcomes = 0, Store.outcomes

        def counted(self: Store, calls: Sequence[Call[Any]]) -> list[Outcome]:
            nonlocal made
            if made == round_trips:
                os.kill(os.getpid(), signal.SIGKILL)
            made += 1
            return outcomes(self, calls)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Store, "outcomes", counted)
            work()
        code = 0
    finally:
        # Nothing of the tests' process may be ended twice.
        os._exit(code)
