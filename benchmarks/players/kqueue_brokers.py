"""The brokers under load: each is started for one round and stopped after it.

So only one runs at a time, and the harness, which counts the processor time of children that
have exited, can attribute it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.loadgen import program
from benchmarks.players.kqueue_dialects import Dialect, Kqueue, Nats, Resp

_START_WITHIN_S, _END_WITHIN_S = 10.0, 10.0


@dataclass(slots=True)
class Running:
    """A listening broker; *counted* has its counters after it has stopped, if it counts."""

    port: int
    pid: int = 0
    counted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that can be put under load."""

    dialect: Dialect
    about: Callable[[], str]
    run: Callable[[Mapping[str, Any]], AbstractContextManager[Running]]


# ── ours ─────────────────────────────────────────────────────────────────────


def _ours(loop: str) -> Broker:
    def about() -> str:
        python = ".".join(map(str, sys.version_info[:3]))
        try:
            shown = f"uvloop {version('uvloop')}" if loop == "uvloop" else loop
        except PackageNotFoundError:
            shown = "asyncio"
        return f"TamboMQ {version('tambomq')} (Python {python}, {shown})"

    @contextmanager
    def run(order: Mapping[str, Any]) -> Iterator[Running]:
        command = [sys.executable, "-m", "benchmarks.players.kqueue_server", "--loop", loop]
        command += ["--slow", order.get("slow", "disconnect")]
        with _child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            running = Running(int(process.stdout.readline() or 0), process.pid)
            if not running.port:
                raise RuntimeError("the server does not start")
            yield running
            output, _ = process.communicate(timeout=_END_WITHIN_S)
            running.counted = json.loads(output)

    return Broker(Kqueue(), about, run)


# ── others ───────────────────────────────────────────────────────────────────


def nats_server() -> str:
    """Return its path; raise if it is not installed."""
    # Debian installs it in a directory that only root's PATH has.
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")
    if found is None:
        raise RuntimeError("nats-server is not installed: run scripts/install-nats")
    return found


def _nats_version() -> str:
    command = [nats_server(), "--version"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return f"nats-server {printed.split()[-1].lstrip('v')}"


@contextmanager
def _nats(_order: Mapping[str, Any]) -> Iterator[Running]:
    """Core NATS with its default settings."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nats_server(), "--addr", "127.0.0.1", "--port", "-1"]
        command += ["--ports_file_dir", folder]
        with _child(command, stderr=subprocess.DEVNULL) as process:
            yield Running(_nats_port(Path(folder), process), process.pid)


def _nats_port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + _START_WITHIN_S
    while time.monotonic() < until and process.poll() is None:
        for ports_file in folder.glob("*.ports"):
            # The file may exist before it is complete.
            try:
                (address,) = json.loads(ports_file.read_text())["nats"]
            except ValueError:
                continue
            return int(urlsplit(address).port or 0)
        time.sleep(0.01)
    raise RuntimeError("nats-server does not start")


@contextmanager
def _redis(order: Mapping[str, Any]) -> Iterator[Running]:
    """The harness's Redis server, which keeps running."""
    yield Running(urlsplit(order["url"]).port or 6379)


@contextmanager
def _relay(order: Mapping[str, Any]) -> Iterator[Running]:
    command = [str(program("relay")), str(order["consumers"])]
    with _child(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Running(int(process.stdout.readline()), process.pid)


@contextmanager
def _child(command: list[str], **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **streams)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


BROKERS: dict[str, Broker] = {
    "tambomq": _ours("uvloop"),
    "asyncio": _ours("asyncio"),
    "nats": Broker(Nats(), _nats_version, _nats),
    "redis": Broker(Resp(), lambda: "PUBLISH at the server named first", _redis),
    "relay": Broker(Kqueue(), lambda: "a relay in C, benchmarks/loadgen/relay.c", _relay),
}
