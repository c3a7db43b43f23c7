"""Measures a worker command from outside: each run of a job appends one byte to a file.

Peers start their workers by a command, in several processes, and end their bookkeeping at
different moments; the length of a file is the same proof for all, and costs a run about a
microsecond. Environments without TamboMQ import this file too: standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE, URL, QUEUE = "BENCH_TALLY", "BENCH_URL", "BENCH_QUEUE"
"""Variables by which a worker process learns where it works."""

_POLL_EVERY_S = 0.001
_LONGEST_S = 300.0
_END_WITHIN_S = 20.0


def counter() -> Callable[[], object]:
    """Return what a job calls when it runs, in a process that `drained` started."""
    file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND)
    return lambda: os.write(file, b".")


def drained(command: Sequence[str], order: Mapping[str, Any]) -> dict[str, float]:
    """Run a worker *command* on a filled queue; return its rate and the time to its first job.

    The clock of the rate starts once the first *warm* jobs ran: start-up is not counted.
    """
    warm, total = order["warm"], order["warm"] + order["count"]
    with tempfile.TemporaryDirectory() as folder:
        tally, errors = Path(folder) / "tally", Path(folder) / "errors"
        tally.touch()
        env = os.environ | {
            "PYTHONUNBUFFERED": "1",
            FILE: str(tally),
            URL: order["url"],
            QUEUE: order["queue"],
        }
        began_s = time.perf_counter()
        with errors.open("wb") as log:
            process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            _, first_s = _reached(1, tally, process, errors)
            ran, from_s = _reached(warm, tally, process, errors)
            ran_in_all, until_s = _reached(total, tally, process, errors)
        finally:
            _end(process)
        if (runs := tally.stat().st_size) != total:
            raise RuntimeError(f"{runs} runs of {total} jobs")
    return {"rate": (ran_in_all - ran) / (until_s - from_s), "first": first_s - began_s}


def beside(program: str) -> str:
    """Return the path of a *program* that is installed in this environment."""
    return str(Path(sys.executable).with_name(program))


def _reached(
    count: int, tally: Path, process: subprocess.Popen[bytes], errors: Path
) -> tuple[int, float]:
    """Return how many jobs ran once there were *count*, and when that was seen."""
    give_up_s = time.perf_counter() + _LONGEST_S
    while (ran := tally.stat().st_size) < count:
        if process.poll() is not None or time.perf_counter() > give_up_s:
            raise RuntimeError(f"ran {ran} of {count} jobs: {errors.read_text()[-2000:]}")
        time.sleep(_POLL_EVERY_S)
    return ran, time.perf_counter()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Processes that it started and left behind: all are in its own group.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
