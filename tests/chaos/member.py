"""One process of a subject, with a proxy of its own, which faults may kill, stop and cut off."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.store.proxy import Proxy

ROOT: Final = Path(__file__).parents[2]
Part = Literal["sender", "worker", "server"]
REDIS: Final = "redis"
"""What a role connects to if not to another role."""

# Below the range that outgoing connections take theirs from.
_PORTS = range(20_000, 32_000)
_END_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Role:
    """What some processes of a subject do: a program, and how many run it."""

    name: str
    """Its processes are ``<name>-<n>.<start>``, as in ``worker-2.1``."""
    module: str
    """The program, below ``tests.chaos.roles`` by custom; run by ``python -m``."""
    count: int = 1
    to: str = REDIS
    """What it connects to, through a proxy: Redis, the role of that name, or nothing (empty)."""
    sends: bool = False
    """Whether it makes messages. Such processes are ended first."""
    serves: bool = False
    """Whether it listens on a port that other roles connect to."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More for the program: `RoleContext.options`."""

    @property
    def part(self) -> Part:
        """What it is to faults."""
        return "sender" if self.sends else "server" if self.serves else "worker"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all processes of a run are given."""

    folder: Path
    seed: int
    lease_s: float
    source: Path
    older: Path | None = None
    """The source of an earlier version, for upgrades."""


class Member:
    """A process of a role. It is started again under another name, with the same proxy."""

    def __init__(self, role: Role, number: int, given: Surroundings) -> None:
        self.role, self.number = role, number
        self.port = free_port() if role.serves else 0
        self.proxy: Proxy | None = None
        self.url = ""
        """Instead of an address behind the proxy, if given."""
        self.held = threading.Lock()
        """Held by the fault that acts on it."""
        self.is_ending = False
        self.source = given.source
        """The source of the product that it runs from its next start on."""
        self._given, self._starts = given, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def actor(self) -> str:
        """The name of the process that runs, or ran last."""
        return f"{self.role.name}-{self.number}.{self._starts}"

    @property
    def pid(self) -> int:
        """The process id, which is that of its group too; raises when nothing runs."""
        if self._process is None:
            raise RuntimeError(f"{self.role.name}-{self.number} is not running")
        return self._process.pid

    @property
    def log(self) -> Path:
        """What the process has written to its standard error."""
        return self._given.folder / f"{self.actor}.log"

    def start(self) -> None:
        """Start the process under its next name."""
        self._starts += 1
        self.is_ending = False
        given = self._given
        options = {
            "actor": self.actor,
            "number": self.number,
            "folder": str(given.folder),
            "seed": given.seed,
            "lease_s": given.lease_s,
            "target": self.proxy.port if self.proxy else 0,
            "url": self.url,
            "port": self.port,
            "options": dict(self.role.options),
        }
        path = f"{self.source}{os.pathsep}{ROOT}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.role.module, json.dumps(options)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, "GRPC_VERBOSITY": "ERROR"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of its own, with all that it starts
            )
        self._guard = _guard(self._process.pid)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL), if it runs."""
        if self._process is not None:
            self.signal_group(signal.SIGKILL)
            self._process.wait()
            self._forget()

    def end(self) -> int:
        """Ask the process to end (SIGTERM) and return its exit code; kill it if it does not."""
        if self._process is None:
            return 0
        self.is_ending = True
        self._process.terminate()
        try:
            code = self._process.wait(_END_WITHIN_S)
            # It may have been asked before its program was there to hear it.
            return 0 if code == -signal.SIGTERM else code
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            self.kill()

    def crashed(self) -> int | None:
        """Return the exit code of a process that ended by itself; `None` if it runs."""
        if self._process is None or self.is_ending or self._process.poll() is None:
            return None
        code = self._process.returncode
        self.kill()
        return code

    def is_listening(self) -> bool:
        """Whether the process accepts connections; true if it is no server."""
        if not self.role.serves:
            return True
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _forget(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        self._process = self._guard = None


def free_port() -> int:
    """Return a port of loopback that is free."""
    for port in random.SystemRandom().sample(_PORTS, 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


def _guard(group: int) -> subprocess.Popen[bytes]:
    """A process that kills *group* when this process is gone, however it went."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read _; kill -9 -- "-$0"', str(group)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
