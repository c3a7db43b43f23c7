"""ChasquiMQ, the engine's and ours, behind one interface: either can play any part."""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import redis

from tambomq.chasqui.keys import Keys
from tests.peers.driver import PEERS, Driver, in_python

SOON: dict[str, Any] = {"read_block_ms": 100}
"""For workers that are stopped and started: the engine's leaves a read behind for so long."""


class Ran(NamedTuple):
    """A run of a handler, as the handler recorded it."""

    worker: str
    id: str
    name: str
    data: Any
    attempts_made: int
    created_at_ms: int


class Party:
    """A queue, its worker and its listener, in a process of their own."""

    def __init__(self, name: str, driver: Driver) -> None:
        self.name, self._driver = name, driver

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("ours")

    def open(self, url: str, queue: str, **options: Any) -> None:
        """Open *queue*; ours uses the engine's dialect by default."""
        self._ask("open", url, queue, **self._speaking(options))

    def do(self, method: str, *args: Any, **options: Any) -> Any:
        """What ``Queue.<method>`` returns: a job as its id, other values as dicts."""
        return self._ask("call", method, *args, **options)

    def add(self, name: str, data: Any, **options: Any) -> str:
        """Add a job; returns its id."""
        return str(self.do("add", name, data, **options))

    def result_of(self, data: Any, *, timeout_s: float = 10.0) -> Any:
        """Add a job and wait for its result."""
        return self._ask("result_of", "", data, timeout_s)

    def raw_add(self, payload: bytes, **opts: Any) -> str:
        """Add a job by the engine's lower interface."""
        return str(self._ask("raw_add", payload, opts))

    def work(self, **options: Any) -> None:
        """Start a worker."""
        self._ask("work", **self._speaking(SOON | options))

    def stop(self) -> None:
        """End the worker in order."""
        self._ask("stop")

    def listen(self, **options: Any) -> None:
        """Subscribe to events."""
        self._ask("listen", **options)

    def heard(self) -> list[tuple[str, str | None, str, dict[str, Any]]]:
        """The events so far: name, job's id, job's name, other fields."""
        events: list[tuple[str, str | None, str, dict[str, Any]]] = self._ask("heard")
        return events

    def close(self) -> None:
        """Close the queue and all that runs on it."""
        self._ask("close")

    def kill(self) -> None:
        """End the process as a crash would."""
        os.kill(self._ask("pid"), signal.SIGKILL)

    def _speaking(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"dialect": "engine"} | options if self.is_ours else options

    def _ask(self, op: str, *args: Any, **options: Any) -> Any:
        return ast.literal_eval(self._driver.ask(op, given=repr((args, options))))


class Pair(NamedTuple):
    """The engines that add jobs and run them."""

    producer: Party
    consumer: Party


class Chasquis:
    """Parties by name, each started when first asked for: ``ours…`` or ``theirs…``."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started: dict[str, Party] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> Party:
        """The party of that name; skips the test where the engine is not installed."""
        if name not in self._started:
            script = str(PEERS / "chasqui_driver.py")
            command: list[str | Path] = [sys.executable, script, "tambomq.chasqui", name]
            if not name.startswith("ours"):
                command = in_python("chasquimq", script, "chasquimq", name)
            self._started[name] = Party(name, self._stack.enter_context(Driver(*command)))
        return self._started[name]

    def kill(self, name: str) -> None:
        """Kill a party; the next `get` starts a new one."""
        self._started.pop(name).kill()


class Scene:
    """A queue on one server, with the parties that have turned to it."""

    def __init__(self, url: str, keys: Keys, chasquis: Chasquis) -> None:
        self.url, self.keys, self._chasquis = url, keys, chasquis
        self.db: redis.Redis = redis.Redis.from_url(url)
        self._opened: dict[str, Party] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for party in self._opened.values():
            party.close()
        self.db.close()

    def get(self, name: str, **options: Any) -> Party:
        """The party of that name; options count when it is first asked for."""
        if name not in self._opened:
            party = self._chasquis.get(name)
            party.open(self.url, self.keys.queue, **options)
            self._opened[name] = party
        return self._opened[name]

    def kill(self, name: str) -> None:
        """End a party as a crash would."""
        del self._opened[name]
        self._chasquis.kill(name)

    def ran(self, condition: Callable[[Ran], bool] = lambda run: True) -> list[Ran]:
        """The runs so far, by whomever."""
        rows: Any = self.db.lrange(f"ran:{self.keys.queue}", 0, -1)
        runs = (Ran(*ast.literal_eval(row.decode())) for row in rows)
        return [run for run in runs if condition(run)]

    def let_go(self) -> None:
        """Let one run end that holds its handler: that of a job with ``{"hold": True}``."""
        self.db.rpush(f"let-go:{self.keys.queue}", "")

    def is_empty(self) -> bool:
        """Whether no job waits, runs or is delayed."""
        keys = self.keys
        return self.db.xlen(keys.stream) == 0 and self.db.zcard(keys.delayed) == 0
