"""A forked copy that returns from its handler is ended, and says so."""

from __future__ import annotations

import os

import pytest

from tambomq.runtime.forks import end_copy, forks


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (ValueError(), 1), (SystemExit(3), 3), (SystemExit("no"), 1)]
)
def test_a_copy_ends_with_the_code_of_its_error(error: BaseException | None, code: int) -> None:
    before = forks.count
    if (child := os.fork()) == 0:
        if forks.count == before + 1:
            end_copy("q n 1", error)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert forks.count == before
