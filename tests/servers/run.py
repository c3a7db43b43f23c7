"""A Redis or Valkey server that a test starts and stops."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.poll import eventually
from tests.servers.ports import free_ports
from tests.servers.tls import Certificate

_START_WITHIN_S = 20.0
_STOP_WITHIN_S = 60.0


class Server:
    """A server on a free loopback port, with a directory of its own.

    *args* follow the defaults ``--save "" --appendonly no`` and win over them. Both exist at once:
    `url` over TCP (TLS when a *certificate* is given) and `unix_url` over a socket file. Options
    belong to a start: change `args` before `restart` to come back with others. *environ* is what
    its environment has beyond ours.
    """

    def __init__(
        self,
        binary: Path,
        *args: str,
        password: str = "",
        certificate: Certificate | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.binary, self.args, self.environ = binary, args, environ
        self.password, self.certificate = password, certificate
        self.port = 0
        self.dir = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.dir = Path(tempfile.mkdtemp(prefix="tambo-"))
        try:
            self._start_anywhere()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id; raises when nothing runs."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def url(self) -> str:
        """Where the server listens, with the password if it has one."""
        scheme = "rediss" if self.certificate else "redis"
        return f"{scheme}://{self._credentials}127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        """The same server through its socket file."""
        return f"unix://{self._credentials}{self.socket}"

    @property
    def socket(self) -> Path:
        """The socket file."""
        return self.dir / "s.sock"

    @property
    def log(self) -> str:
        """What the server has written since it was first started."""
        path = self.dir / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Ask the server to end (SIGTERM) and wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start again on the same port and directory, stopping first if it runs."""
        self.stop()
        if not self._start(self.port):
            raise RuntimeError(f"port {self.port} was taken in between\n{self.log}")

    def _start_anywhere(self) -> None:
        for port in free_ports():
            if self._start(port):
                self.port = port
                return
        raise RuntimeError(f"{self.binary} found no free port\n{self.log}")

    def _start(self, port: int) -> bool:
        """Start on *port*; false if another process took it first."""
        began = len(self.log)
        with (self.dir / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary, *self._options(port), *self.args],
                cwd=self.dir,
                env={**os.environ, **(self.environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, not for their servers
            )
        self._guard = _guard(self._process.pid)
        if eventually(self._ready_or_ended, within_s=_START_WITHIN_S) == "ready":
            return True
        self.kill()
        output = self.log[began:]
        if "already in use" in output:
            return False
        raise RuntimeError(f"{self.binary} did not start:\n{output}")

    def _options(self, port: int) -> list[str]:
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        options += ["--dir", str(self.dir), "--unixsocket", str(self.socket)]
        if self.password:
            options += ["--requirepass", self.password]
        if self.certificate is None:
            return [*options, "--port", str(port)]
        return [*options, "--port", "0", "--tls-port", str(port), *self.certificate.options]

    def _ready_or_ended(self) -> str:
        if self._process is None or self._process.poll() is not None:
            return "ended"
        # The socket file is asked because only our own server can own it. It is
        # opened after the port, so by then the port is ours as well.
        return "ready" if _answers(self.socket) else ""

    def _end(self, how: signal.Signals) -> None:
        # The guard goes first: once the server is reaped, its pid may be another's.
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def _credentials(self) -> str:
        return f":{self.password}@" if self.password else ""


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A process that kills *pid* when this one is gone, however it went.

    It waits on a pipe that only we hold: the kernel closes it for us even after SIGKILL. Unlike
    PR_SET_PDEATHSIG this is not bound to the starting thread and works on macOS.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read _; kill -9 "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _answers(path: Path) -> bool:
    """Whether a server answers there and has loaded its data; a demand for a password will do."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
