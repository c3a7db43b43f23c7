"""Copies of a worker that its handlers fork: one that returns from its handler is ended.

It would go on as a second worker, on the sockets of the first.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec


class ForkCount(msgspec.Struct):
    """How often this process has been forked from another."""

    count: int = 0


forks = ForkCount()


def _count() -> None:
    forks.count += 1


os.register_at_fork(after_in_child=_count)


def end_copy(job: str, error: BaseException | None = None) -> NoReturn:
    """End this process, which was forked by the handler of *job* and has returned from it."""
    sys.stderr.write(
        f"process {os.getpid()}, forked by a handler ({job}), returned from it, and was ended: "
        "a forked process must end with os._exit\n"
    )
    sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code if isinstance(code, int) else int(code is not None))
