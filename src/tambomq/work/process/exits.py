"""Ends a worker process, whatever its handlers have left running."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

FAILED: Final = 1

# How long the end of the process waits for threads that a handler may have left behind.
_THREADS_END_S: Final = 0.2

_log: Final = logging.getLogger(__name__)


def leave(code: int, runner: asyncio.Runner) -> NoReturn:
    """End the process; plain handlers that never return must not keep it."""
    until = time.monotonic() + _THREADS_END_S
    for thread in _left_threads():
        thread.join(max(0.0, until - time.monotonic()))
    if left := _left_threads():
        _log.warning("%d threads still run handlers; the process ends without them", len(left))
        # What libraries do at the end of an interpreter, such as sending their last errors.
        atexit._run_exitfuncs()  # noqa: SLF001  (there is no public way to leave threads behind)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    runner.close()
    sys.exit(code)


def kill_group() -> NoReturn:
    """End this process and those that its handlers have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(FAILED)


def _left_threads() -> Sequence[threading.Thread]:
    """Return threads that would keep the interpreter from ending."""
    main_thread = threading.main_thread()
    return [each for each in threading.enumerate() if not each.daemon and each is not main_thread]
