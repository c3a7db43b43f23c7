"""``tambo work`` as process 1, as in a container: it drains, and collects orphans."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tambomq.chasqui import BlockingQueue
from tests.cli import running
from tests.servers import Server, eventually
from tests.work.supervising import WITHIN_S, Shop
from tests.work.supervising import shop as open_shop

UNSHARE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")


def may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not may_unshare(), reason="this user may not make a PID namespace"),
]


@pytest.fixture
def shop(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(running, "COMMAND", (*UNSHARE, *running.COMMAND))
    with open_shop(tmp_path, server.url) as opened:
        yield opened


def children(pid: int) -> dict[int, str]:
    """The state of each child of *pid*: ``Z`` for one that nobody has collected."""
    found = {}
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # It may have been collected meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            stat = Path(f"/proc/{each}/stat").read_text()
            found[int(each)] = stat.rpartition(") ")[2].split()[0]
    return found


def is_alone(pid: int) -> bool:
    """Whether it has one child, which lives."""
    states = list(children(pid).values())
    return len(states) == 1 and states != ["Z"]


def test_orphans_are_collected_and_sigterm_drains(shop: Shop, server: Server) -> None:
    shop.write("""
        async def handle(job: Job) -> None:
            note("begun", job)
            if (child := os.fork()) == 0:
                # Its child outlives it, and is inherited by process 1.
                if os.fork() == 0:
                    time.sleep(0.1)
                os._exit(0)
            os.waitpid(child, 0)
            await asyncio.sleep(job.data)
            note("ended", job)

        worker = Worker("q", handle, redis_url=URL)
    """)
    work = shop.work("app").ready()
    (first,) = children(work.pid)  # of unshare: process 1 of its namespace
    with BlockingQueue("q", redis_url=server.url) as queue:
        queue.add_bulk([{"name": "orphan", "data": 0} for _ in range(5)])
        eventually(lambda: shop.notes.count("ended") == 5, within_s=WITHIN_S)
        # Its worker process is left, and nothing dead.
        eventually(lambda: is_alone(first), within_s=WITHIN_S)
        queue.add("slow", 1)
        eventually(lambda: shop.notes.count("begun") == 6, within_s=WITHIN_S)
    subprocess.run(["kill", f"-{signal.SIGTERM:d}", str(first)], check=True)
    assert work.wait() == 0
    assert shop.notes.count("ended") == 6
