"""``tambo work`` as a user starts it, with a module of the test's own, and what its handlers did.

Handlers write to a file, not to Redis: tests kill the server too. One line for each thing that
happens, in the order in which it happened: ``begun <pid> <job>`` and ``ended <pid> <job>``.
"""

from __future__ import annotations

import os
import re
import signal
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.running import Running, starting
from tests.serve.processes import alive, get
from tests.servers import eventually
from tests.servers.ports import free_port

WITHIN_S = 60.0

_HEAD = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from tambomq.chasqui import Job, Worker
from tambomq.rsmq import Message, RsmqWorker

URL = {url!r}
_notes = os.open({notes!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(what, job):
    os.write(_notes, f"{{what}} {{os.getpid()}} {{job.id}}\\n".encode())
"""
SLEEPER = """
async def handle(job: Job) -> None:
    note("begun", job)
    await asyncio.sleep(job.data or 0)
    note("ended", job)

worker = Worker("q", handle, redis_url=URL, concurrency=8, claim_min_idle_ms=3000, backoff=20)
"""
"""A module whose jobs take as many seconds as their data says."""


class Notes:
    """What the handlers have noted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[tuple[str, int, str]]:
        """Yield what happened, in which process, with which job."""
        text = self.path.read_text() if self.path.exists() else ""
        # Of a line that crosses a page of the file, the beginning may be there first.
        *lines, _ = text.split("\n")
        for line in lines:
            what, pid, job = line.split(" ")
            yield what, int(pid), job

    def count(self, what: str) -> int:
        """How often it happened."""
        return sum(each == what for each, _, _ in self)

    def pids(self, what: str = "begun") -> set[int]:
        """In which processes it happened."""
        return {pid for each, pid, _ in self if each == what}

    def jobs(self, what: str) -> Counter[str]:
        """How often it happened to each job."""
        return Counter(job for each, _, job in self if each == what)

    def overlaps(self, killed: set[int]) -> list[str]:
        """Jobs that began in one process while another one, not of *killed*, still ran them."""
        owners: dict[str, int] = {}
        found = []
        for what, pid, job in self:
            if what == "begun":
                if job in owners and owners[job] not in killed:
                    found.append(job)
                owners[job] = pid
            elif owners.get(job) == pid:
                del owners[job]
        return found


class Supervised:
    """A running ``tambo work``."""

    def __init__(self, running: Running, port: int) -> None:
        self.running, self._port = running, port
        self.pid = running.process.pid

    @property
    def out(self) -> str:
        """What is on stdout."""
        return self.running.out

    @property
    def err(self) -> str:
        """What is on stderr."""
        return self.running.err

    def says(self, pattern: str, stream: str = "out") -> None:
        """Wait until *stream* holds *pattern*."""
        self.running.says(pattern, stream)

    def ready(self) -> Supervised:
        """Wait until every process reads."""
        eventually(lambda: self.get("/readyz")[0] == 200, within_s=WITHIN_S)
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page; 0 if nothing listens."""
        try:
            return get(f"http://127.0.0.1:{self._port}{path}")
        except OSError:
            return 0, ""

    def health(self) -> dict[str, Any]:
        """The page /healthz."""
        found: dict[str, Any] = msgspec.json.decode(self.get("/healthz")[1])
        return found

    def metric(self, name: str, **labels: object) -> float:
        """The sum of the samples of a metric that have *labels*."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            found = re.fullmatch(r"tambo_work_(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name and wanted <= set((found[2] or "").split(",")):
                total += float(found[3])
        return total

    def pids(self) -> list[int]:
        """The processes, by number."""
        return [each["pid"] for each in self.health().values() if each["pid"]]

    def signal(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code, when it has ended."""
        return self.running.process.wait(120)

    def stop(self) -> int:
        """Drain it, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()


class Shop:
    """A folder with modules, and the commands that run there."""

    def __init__(self, folder: Path, url: str, start: Any) -> None:
        self.folder, self._url, self._start = folder, url, start
        self.notes = Notes(folder / "notes")

    def write(self, body: str = SLEEPER, module: str = "app") -> Path:
        """Write a module that begins with imports, `URL` and `note`."""
        path = self.folder / f"{module}.py"
        head = _HEAD.format(url=self._url, notes=str(self.notes.path))
        path.write_text(head + textwrap.dedent(body))
        return path

    def work(self, *args: str) -> Supervised:
        """Start ``tambo work`` with status pages."""
        port = free_port()
        return Supervised(self._start("work", *args, "--http-port", str(port)), port)


@contextmanager
def shop(folder: Path, url: str) -> Iterator[Shop]:
    """A shop in *folder*; supervisors that still run at the end are killed, and drained."""
    with starting(folder) as start:
        yield Shop(folder, url, start)


def ended(pid: int) -> None:
    """Wait until a process has ended."""
    eventually(lambda: not alive(pid), within_s=WITHIN_S)
