"""The servers that are measured against: fresh ones, or one that runs already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.servers import Server, binaries

KINDS = ("valkey", "redis7", "redis8")


class NoServer(Exception):
    """It cannot be had here."""


@dataclass(frozen=True, slots=True)
class BenchServer:
    """Where the server is; a *pid* of 0 is not ours to know."""

    url: str
    pid: int
    version: str


_running: dict[str, BenchServer] = {}
_ends = ExitStack()


@contextmanager
def place(kind: str) -> Iterator[BenchServer]:
    """A fresh server of *kind*, without persistence, or the one at a URL."""
    with _ends:
        try:
            yield BenchServer(kind, 0, _version(kind)) if "://" in kind else beside(kind)
        finally:
            _running.clear()


def beside(kind: str) -> BenchServer:
    """The server of *kind* that runs; if none does, a fresh one that ends with `place`."""
    if kind not in _running:
        server = _ends.enter_context(Server(_binary(kind)))
        _running[kind] = BenchServer(server.url, server.pid, _version(server.url))
    return _running[kind]


def servers() -> list[BenchServer]:
    """Every server that was started here and has not ended."""
    return list(_running.values())


def _binary(kind: str) -> Path:
    found: Path | None = binaries.valkey()
    if kind == "redis7":
        found = binaries.debian_redis()
    elif kind == "redis8":
        found = binaries.redis8(build=False)
    if found is None:
        raise NoServer(f"no {kind} here: `make servers` prepares them all")
    return found


def _version(url: str) -> str:
    store = Store(url)
    info = store.run(Call("INFO", (), ("server",), lambda reply: str(reply, "utf-8")))
    store.close()
    known = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    if "valkey_version" in known:
        return f"Valkey {known['valkey_version']}"
    return f"Redis {known['redis_version']}"
