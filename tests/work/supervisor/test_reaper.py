"""In a process of its own: the reaper collects every child that there is."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, os, signal, subprocess
from tambomq.work.supervisor.reaper import ProcessReaper

async def main():
    reaper = ProcessReaper()
    reaper.start()
    quick = subprocess.Popen(["sh", "-c", "exit 3"])
    slow = subprocess.Popen(["sleep", "1000"])
    stranger = subprocess.Popen(["true"])
    ends = [reaper.watch(each.pid) for each in (quick, slow)]
    os.kill(slow.pid, signal.SIGKILL)
    print([await each for each in ends])
    for _ in range(6000):
        try:
            os.kill(stranger.pid, 0)
        except ProcessLookupError:
            print("collected")
            break
        await asyncio.sleep(0.01)
    for each in (quick, slow, stranger):
        each.returncode = 0

asyncio.run(main())
"""


def test_exits_are_reported_and_orphans_collected() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == ["[3, -9]", "collected"]
