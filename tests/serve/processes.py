"""Processes seen from outside: `tambo` as a user starts it, and its children."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis

from tests.servers import eventually

_COMMAND = [sys.executable, "-c", "from tambomq.cli.main import main; main()"]
_END_WITHIN_S = 60.0

FREE_PORTS = (
    *("--redis-port=0", "--gomq-port=0", "--kqueue-port=0", "--http-port=0"),
    "--gomq-transport=grpc",
)
"""Flags for free ports, and for GOMQ without Envoy, which starts slowly."""


def alive(pid: int) -> bool:
    """Whether *pid* runs; one that has ended and waits to be reaped does not."""
    return _ps("stat", pid)[:1] not in ("", "Z")


def parent_of(pid: int) -> int:
    """The process that started *pid*."""
    return int(_ps("ppid", pid))


def ask(url: str, *command: str | bytes) -> Any:
    """The server's reply to one command."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as peer:
        reader = hiredis.Reader()
        login = [("AUTH", at.username or "default", at.password)] if at.password else []
        replies = []
        for words in (*login, command):
            peer.sendall(hiredis.pack_command(words))
            while (reply := reader.gets()) is False:
                reader.feed(peer.recv(65_536))
            replies.append(reply)
    return replies[-1]


def server_pid(url: str) -> int:
    """The process that answers at *url*."""
    info = ask(url, "INFO", "server").decode()
    return int(info.split("process_id:")[1].split()[0])


def get(url: str) -> tuple[int, str]:
    """Status and body of a page, whatever the status is."""
    at = urlsplit(url)
    asked = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)
    try:
        asked.request("GET", at.path)
        reply = asked.getresponse()
        return reply.status, reply.read().decode()
    finally:
        asked.close()


class Serving:
    """A running ``tambo serve``."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self._folder = process, folder

    @property
    def ready_file(self) -> Path:
        """The path of its ready file."""
        return self._folder / "ready.json"

    @property
    def ready(self) -> dict[str, Any]:
        """The content of its ready file, once it serves."""
        eventually(lambda: self.ready_file.exists() or self.process.poll() is not None, within_s=20)
        assert self.ready_file.exists(), self.stderr
        info: dict[str, Any] = json.loads(self.ready_file.read_text("utf-8"))
        return info

    @property
    def url(self) -> str:
        """Where its Redis is."""
        return str(self.ready["endpoints"]["redis"]["address"])

    def address(self, component: str) -> str:
        """Where a component of it is."""
        return str(self.ready["endpoints"][component]["address"])

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page of its HTTP component."""
        return get(self.address("http") + path)

    @property
    def stdout(self) -> str:
        """What it has printed."""
        return (self._folder / "stdout").read_text("utf-8")

    @property
    def stderr(self) -> str:
        """What it has logged."""
        return (self._folder / "stderr").read_text("utf-8")

    def end(self, how: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(_END_WITHIN_S)


@contextmanager
def serving(
    folder: Path, *args: str, stdout: int | None = None, command: Sequence[str] = _COMMAND
) -> Iterator[Serving]:
    """``tambo serve`` with its data, output and ready file in *folder*, on free ports."""
    folder.mkdir(exist_ok=True)
    (folder / "ready.json").unlink(missing_ok=True)
    flags = ["--data-dir", str(folder / "data"), *FREE_PORTS]
    flags += ["--ready-file", str(folder / "ready.json"), *args]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [*command, "serve", *flags],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=out if stdout is None else stdout,
            stderr=err,
        )
    try:
        yield Serving(process, folder)
    finally:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        finally:
            process.kill()
            process.wait()


def tambo(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``tambo`` to its end, with some variables of its own."""
    return subprocess.run(
        [*_COMMAND, *args],
        cwd=cwd,
        env=clean_environment() | env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def clean_environment() -> dict[str, str]:
    """Our environment without settings, and without the width that pytest-xdist gives terminals."""
    ours = ("TAMBO_", "COLUMNS", "LINES")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}


def _ps(column: str, pid: int) -> str:
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
