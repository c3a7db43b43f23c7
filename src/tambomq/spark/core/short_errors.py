"""Errors of ours, told by Spark in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tambomq.errors import TamboError


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Let Spark tell an error of ours without the way it took through our code.

    Spark plans a read in a Python process of its own and shows whatever that would print. Where
    the fault is the caller's, the last line says it all.
    """
    try:
        yield
    except TamboError as error:
        sys.tracebacklimit = 0
        # What it came from would be told as well, in lines of its own.
        error.__cause__, error.__suppress_context__ = None, True
        raise
