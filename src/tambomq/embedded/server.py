"""The bundled Valkey server: starts it in a data directory and stops it with its owner.

The owner starts a `supervisor`, which starts the server. To stop both, the owner closes its end of
a pipe, the lease; the kernel closes it for an owner that dies. `datadir` locks the directory.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tambomq.embedded import access, ports, supervisor
from tambomq.embedded.access import Access
from tambomq.embedded.command import server_command
from tambomq.embedded.datadir import DataDir
from tambomq.errors import DataDirBusy, EmbeddedError, PortTaken
from tambomq.machine import half_of_memory
from tambomq.store.local_login import register, unregister

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.01
# A running server that has not answered for this long is considered hung.
_SILENT_FOR_S: Final = 60.0
# The supervisor kills a server that does not stop, then ends; that frees its lock.
_STOPPED_WITHIN_S: Final = supervisor.GRACE_S + 5.0
# Attempts with another port when a process takes the free one we found.
_MAX_PORT_ATTEMPTS: Final = 10
# The supervisor's exit code is 128 + signal, as in a shell.
_KILLED: Final = 128


class Embedded:
    """A bundled Valkey server.

    *port* 0 takes any free one and keeps it over restarts. *maxmemory_bytes* limits its data
    (half of the machine's memory by default, 0 means no limit); a full server refuses writes that
    need more. With *auth* clients need a password: see `access`. An *ephemeral* one loses its data
    when it stops, and has `DATABASES` databases. A *private* one has no port, only its socket.

    Blocking; may be used from any thread, by one at a time. After a failed start, `stop` releases
    the directory.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 6379,
        maxmemory_bytes: int | None = None,
        auth: bool = False,
        ephemeral: bool = False,
        private: bool = False,
    ) -> None:
        self.dir = DataDir(data_dir)
        self.host, self.port = host, port
        self._maxmemory = half_of_memory() if maxmemory_bytes is None else maxmemory_bytes
        self._auth, self._access, self._ephemeral = auth, Access("", None), ephemeral
        self._has_socket, self._is_registered, self._is_private = False, False, private
        self.pid, self.version, self._fixed_port = 0, "", port != 0
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._lease, self._log_from = -1, 0
        _made.add(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the server, without a password."""
        return ports.url(self.host, self.port)

    @property
    def login_url(self) -> str:
        """The URL with the password that clients need, if any; known once it runs."""
        return ports.url(self.host, self.port, self._access.default)

    @property
    def client_url(self) -> str:
        """The URL for clients of this user, without the password where they can look it up."""
        return self.url if self._is_registered else self.login_url

    @property
    def admin_url(self) -> str:
        """The URL with the login of `ADMIN`; known once it runs."""
        return ports.url(self.host, self.port, self._access.admin)

    def start(self, on_loading: Callable[[float], None] = lambda _: None) -> None:
        """Start it and wait until its data is loaded; *on_loading* gets the percentage.

        Raises `DataDirBusy`, `PortTaken` or `EmbeddedError`, and nothing runs then.
        """
        try:
            for percent in self.starting():
                on_loading(percent)
                time.sleep(LOOK_EVERY_S)
        except BaseException:
            self.stop()
            raise

    def starting(self) -> Iterator[float]:
        """Start it step by step: yields the percentage loaded and ends when it is ready.

        For callers that wait in their own way. A running server is stopped first.
        """
        self.dir.acquire()
        for _ in range(_MAX_PORT_ATTEMPTS):
            self._end_supervisor()
            # First the lock: the server of a dead owner may still be on the port.
            self._spawn((yield from self._server_lock()))
            try:
                yield from self._loading()
            except PortTaken:
                if self._fixed_port:
                    raise
                continue
            self._fixed_port = True
            self.dir.sign(self.url)
            self._register()
            return
        raise EmbeddedError(f"no free port was found on {self.host}")

    def poll(self) -> int | None:
        """Return its exit code (128 + signal if it was killed), or ``None`` while it runs."""
        return self._running().poll()

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        return self._running().wait()

    def failure(self) -> EmbeddedError:
        """Return why it ended, with the last lines of its log."""
        code, said = self.poll() or 0, self.dir.last_words(self._log_from)
        if "Address already in use" in said:
            return PortTaken(self.host, self.port)
        if code > _KILLED:
            by = signal.Signals(code - _KILLED).name
            return EmbeddedError(f"the embedded server was ended by {by}; see {self.dir.log}")
        return EmbeddedError(
            f"the embedded server ended with code {code}; {self.dir.log} says: {said}"
        )

    def stop(self) -> None:
        """Stop it after it has persisted everything; does nothing if it is not running."""
        self._end_supervisor()
        unregister(self.host, self.port, self.dir.path)
        self.dir.release()

    def _register(self) -> None:
        try:
            if self._auth:
                register(self.host, self.port, self.dir.path)
                self._is_registered = True
            else:
                unregister(self.host, self.port, self.dir.path)
        except OSError as error:
            _log.warning("clients cannot look up the password: %s", error)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._supervisor is None:
            raise EmbeddedError("the embedded server was not started")
        return self._supervisor

    def _server_lock(self) -> Generator[float, None, int]:
        deadline = time.monotonic() + _STOPPED_WITHIN_S
        while (lock := self.dir.server_lock()) is None:
            if time.monotonic() > deadline:
                raise DataDirBusy(str(self.dir.path), "a server that has lost its owner")
            yield 0.0
        return lock

    def _spawn(self, lock: int) -> None:
        try:
            self._access = self._prepared()
            port, self._has_socket = self._listens()
            socket = self.dir.socket.name if self._has_socket else None
            command = server_command(
                self.host, port, self._maxmemory, socket, ephemeral=self._ephemeral
            )
            lease, self._lease = os.pipe()
            try:
                self._supervisor = self._start_supervisor(lease, lock, command)
            finally:
                os.close(lease)
        finally:
            os.close(lock)
        self.port = port
        self.pid = _read_pid(self._supervisor)

    def _listens(self) -> tuple[int, bool]:
        """Return the port to listen on, 0 for none, and whether it can have a socket too."""
        has_socket = ports.can_have_socket(self.dir.socket)
        if not self._is_private:
            return ports.choose(self.host, self.port if self._fixed_port else 0), has_socket
        if not has_socket:
            raise EmbeddedError(f"no Unix socket can be made in {self.dir.path}")
        return 0, has_socket

    def _prepared(self) -> Access:
        try:
            return access.prepare(self.dir.path, auth=self._auth)
        except OSError as exc:
            raise EmbeddedError(f"cannot use {self.dir.path} for data: {exc.strerror}") from exc

    def _facts(self) -> dict[str, str]:
        # The socket is in our own directory: no other user can listen there and read the password.
        at = self.dir.socket if self._has_socket else (self.host, self.port)
        return ports.info(at, self._access.password or "")

    def _start_supervisor(
        self, lease: int, lock: int, command: list[str]
    ) -> subprocess.Popen[bytes]:
        # -I and -S: it needs no packages, and starts in a third of the time.
        python = [sys.executable, "-I", "-S", supervisor.__file__]
        with self.dir.open_log() as log:
            self._log_from = log.tell()
            return subprocess.Popen(
                [*python, str(lease), *command],
                cwd=self.dir.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lease, lock),
                start_new_session=True,  # Ctrl-C is for the owner, which then stops both
            )

    def _loading(self) -> Iterator[float]:
        heard, percent = time.monotonic(), 0.0
        while self.poll() is None:
            facts = self._facts()
            if facts.get("process_id", str(self.pid)) != str(self.pid):
                raise PortTaken(self.host, self.port)
            if facts.get("loading") == "0":
                self.version = facts.get("valkey_version", "")
                return
            if facts:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENT_FOR_S:
                raise EmbeddedError(f"the embedded server does not answer on {self.url}")
            yield (percent := float(facts.get("loading_loaded_perc", percent)))
        raise self.failure()

    def close_lease(self) -> None:
        """Close the lease: the supervisor stops the server, unless another process holds it."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1

    def _end_supervisor(self) -> None:
        self.close_lease()
        if self._supervisor is None:
            return
        try:
            code = self._supervisor.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            code = self._supervisor.wait()
        self._supervisor = None
        # The supervisor was killed. Linux signals the server then, macOS does not.
        if code < 0 and self._facts().get("process_id") == str(self.pid):
            os.kill(self.pid, signal.SIGTERM)


_made: weakref.WeakSet[Embedded] = weakref.WeakSet()


def _close_leases() -> None:
    for each in list(_made):
        each.close_lease()


# A forked child may outlive the owner, and must not keep the server alive then.
os.register_at_fork(after_in_child=_close_leases)


def _read_pid(started: subprocess.Popen[bytes]) -> int:
    """Return the pid from the supervisor's first line; 0 if it died before."""
    if started.stdout is None:
        return 0
    with started.stdout as stdout:
        return int(stdout.readline() or 0)
