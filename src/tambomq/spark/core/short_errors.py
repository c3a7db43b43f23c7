"""`one_line_errors`: lets Spark show TamboMQ's errors in one line, without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tambomq.errors import TamboError
from tambomq.spark.launch.worker_requirements import is_spark_process


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Remove the traceback and the cause from TamboMQ's errors raised in the block.

    Spark plans a read in a Python process of its own and shows all that the process prints. For an
    error of the caller's, the last line is enough.
    """
    try:
        yield
    except TamboError as error:
        # A setting of the whole process: only for one that has nothing else to show.
        if is_spark_process():
            sys.tracebacklimit = 0
        # The cause would be printed too, in lines of its own.
        error.__cause__, error.__suppress_context__ = None, True
        raise
