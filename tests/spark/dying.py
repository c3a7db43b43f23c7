"""Jobs in processes of their own that die, or wait, at a point that is known beforehand.

`Job` is how a test sees one; `CrashPlan` is what the job itself calls at its points.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq

from tests.servers import eventually

_ROOT = Path(__file__).parents[2]
_HELD_FOR_S = 900
_ENDED_WITHIN_S = 60


class InjectedCrash(BaseException):
    """Raised where a test lets a query crash; nothing below a query's own process catches it."""


def first_time(folder: str | Path, what: str) -> bool:
    """Whether this is the first call."""
    try:
        os.close(os.open(Path(folder) / what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Event:
    """What happens, once, at *point* of batch *batch*."""

    point: str
    batch: int = 1
    act: str = "driver"
    """driver: the JVM is killed; executor: the worker's JVM is; raise: `InjectedCrash` is raised;
    hold: nothing goes on there before `CrashPlan.release`."""

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.act} {self.point} {self.batch}"


def raises(point: str, batch: int = 1) -> Event:
    """An error."""
    return Event(point, batch, "raise")


def holds(point: str, batch: int = 1) -> Event:
    """A process that is paused at a point."""
    return Event(point, batch, "hold")


@dataclass(frozen=True)
class CrashPlan:
    """The crashes of one query, and where they happen. Picklable: it is sent to workers."""

    folder: str
    """That of the query; `checkpoint` is in it."""
    events: tuple[Event, ...] = ()
    jvm: int = 0

    @classmethod
    def read(cls, text: str, jvm: int = 0) -> Self:
        """Return the doom that `to_json` has encoded."""
        folder, events, known = json.loads(text)
        return cls(folder, tuple(Event(*each) for each in events), jvm or known)

    def to_json(self) -> str:
        """Return it as text, for an option."""
        return json.dumps([self.folder, [astuple(each) for each in self.events], self.jvm])

    def has_come(self) -> bool:
        """Whether all has happened."""
        return all(Path(self.folder, each.name).exists() for each in self.events)

    def is_held(self) -> bool:
        """Whether all processes have reached their points."""
        held = [each.name for each in self.events if each.act == "hold"]
        return all(Path(self.folder, name).exists() for name in held)

    def at(self, point: str, batch: int, *, and_us: bool = False) -> None:
        """Carry out what is planned for this point; *and_us*: in the calling process, too."""
        for event in self.events:
            here = (event.point, event.batch) == (point, batch)
            if not here or not first_time(self.folder, event.name):
                continue
            if event.act == "hold":
                self._hold(event)
                continue
            if event.act == "raise":
                raise InjectedCrash(event.name)
            os.kill(self.jvm if event.act == "driver" else _grandparent(), signal.SIGKILL)
            if and_us:
                os.kill(os.getpid(), signal.SIGKILL)

    def release(self) -> None:
        """Resume all paused processes."""
        for event in self.events:
            self._released(event).touch()

    def planned(self) -> int:
        """How many batches the offset log has."""
        return logged(Path(self.folder), "offsets")

    def _hold(self, event: Event) -> None:
        until = time.monotonic() + _HELD_FOR_S
        while not self._released(event).exists() and time.monotonic() < until:
            time.sleep(0.02)

    def _released(self, event: Event) -> Path:
        return Path(self.folder, f"{event.name} is over")


class Job:
    """A module that runs with *args* as JSON. When the block ends, it and all it started are gone.

    All of them are of one session; not of one process group, since Spark's daemon makes its own.
    """

    def __init__(self, module: str, folder: Path, args: Any) -> None:
        self.log = folder / "log"
        self._command = [sys.executable, "-m", module, json.dumps(args)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
        added = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": str(_quick_python(self.log.parent, path)),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.log.parent,
                stdout=log,
                stderr=log,
                env={**os.environ, **added},
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def status(self) -> int | None:
        """How it ended; `None` while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, within_s: float) -> int:
        """How it ended."""
        assert self._process is not None
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.log.read_text()[-4000:]}") from None

    def until(self, condition: Any, within_s: float) -> None:
        """Wait for *condition*, and no longer than the job runs."""
        eventually(lambda: condition() or self.status is not None, within_s=within_s)
        assert self.status is None, self.log.read_text()[-4000:]

    def signal(self, number: int) -> None:
        """Send a signal to all its processes."""
        for pid in self._members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all its processes as a crash would."""
        assert self._process is not None

        def has_ended() -> bool:
            assert self._process is not None
            self.signal(signal.SIGKILL)
            self._process.poll()
            return not self._members()

        # More than once: one may be started while we look.
        eventually(has_ended, within_s=_ENDED_WITHIN_S)
        self._process.wait()

    def _members(self) -> list[int]:
        assert self._process is not None
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            state, _, _, session = _stat(int(entry.name))
            if int(session) == self._process.pid and state != "Z":
                found.append(int(entry.name))
        return found


def run(module: str, folder: Path, args: Any, *, within_s: float = 300) -> tuple[int, str]:
    """The job's exit status and its output."""
    with Job(module, folder, args) as job:
        status = job.wait(within_s)
    return status, job.log.read_text()[-6000:]


def killed(
    module: str, folder: Path, args: Any, dooms: Sequence[CrashPlan], *, within_s: float = 300
) -> None:
    """Run a job until all its planned deaths have happened, and no longer."""
    with Job(module, folder, args) as job:
        job.until(lambda: all(doom.is_held() for doom in dooms), within_s)
        for doom in dooms:
            # Where it was held, something else is still to happen.
            if not doom.has_come():
                doom.release()
                job.wait(within_s)
    assert all(doom.has_come() for doom in dooms), job.log.read_text()[-6000:]


def logged(folder: Path, log: str) -> int:
    """How many batches are in a log of the checkpoint: offsets or commits."""
    names = [int(path.name) for path in (folder / "checkpoint" / log).glob("[0-9]*")]
    return max(names, default=-1) + 1


def committed(folder: Path, column: str) -> list[Any]:
    """What the files hold that the sink's own log names."""
    paths = set[str]()
    for log in (folder / "out" / "_spark_metadata").glob("[0-9]*"):
        version, *lines = log.read_text().splitlines()
        assert version == "v1"
        paths |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    tables = [pq.read_table(path, partitioning=None) for path in sorted(paths)]
    return [value for table in tables for value in table[column].to_pylist()]


def _quick_python(folder: Path, path: str) -> Path:
    """A Python for workers that starts in a quarter of the time.

    Spark puts a zip of itself first, which each process of it compiles anew.
    """
    program = folder / "python"
    if not program.exists():
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec {sys.executable} "$@"\n')
        program.chmod(0o755)
    return program


def _grandparent() -> int:
    """A worker is a child of a daemon that is a child of the executor."""
    return int(_stat(os.getppid())[1])


def _stat(pid: int) -> list[str]:
    """State, parent, process group and session of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", "0", "0", "0"]
    # The name before may hold anything, also a parenthesis.
    return text.rpartition(")")[2].split()[:4]
