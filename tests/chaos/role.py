"""What the programs of the chaos suite share: their options, their messages and their records."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tambomq.errors import BatchIncomplete, BrokerUnavailable, ReplyLost, TamboError
from tests.chaos.history import Recorder

KINDS: Final = {"plain": 84, "slow": 3, "flaky": 5, "doomed": 3, "later": 5}
"""The kinds of messages, and how many of a hundred are of each."""
STARVED_SHARE: Final = 0.1
"""A process that was not run for this share of a lease records it as a fault of the machine."""
FORK: Final = signal.SIGWINCH
"""The signal at which a program forks a process that holds its connections, and does nothing.

Programs that do not know it ignore it.
"""
FORKED_LEASES: Final = 2.0
"""How long that process lives."""
_LOOK_EVERY_S = 0.05
_BEHIND_S = 0.5
_WORK_S = 0.02
# After these nobody knows whether the message is stored. Other errors say that it is not.
_UNKNOWN = (ReplyLost, BatchIncomplete, BrokerUnavailable)


class HandlerFailed(Exception):
    """Raised by a handler whose message is to fail."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that is to be sent."""

    text: str
    delay_s: float = 0.0


class RoleContext:
    """What a program is given, and what it uses to send, to handle and to record."""

    def __init__(self, given: Mapping[str, Any], *, first_operation: int = 1) -> None:
        self.actor: str = given["actor"]
        self.number: int = given["number"]
        self.folder, self.seed = Path(given["folder"]), given["seed"]
        self.lease_s: float = given["lease_s"]
        self.target: int = given["target"]
        """The port that it connects to: that of a proxy."""
        self.url: str = given["url"] or f"redis://127.0.0.1:{self.target}"
        """Redis, if it connects to that."""
        self.port: int = given["port"]
        """The port that it serves, if it is a server."""
        self.options: Mapping[str, Any] = given["options"]
        self.recorder = Recorder(self.folder, self.actor, first=first_operation)
        self.random = random.Random(f"{self.seed} {self.actor}")
        self.stopping = threading.Event()
        """Set when it is to end."""

    def messages(self, *, kinds: Mapping[str, int] = KINDS) -> Iterator[Outgoing]:
        """Yield messages, ``options["rate"]`` a second, until the program is to end.

        *kinds*: how many of a hundred are of each kind, unless ``options["kinds"]`` says so. What a
        kind does is in its name: several may be joined, as in ``slow+flaky``.
        """
        kinds = self.options.get("kinds") or kinds
        names, weights = list(kinds), list(kinds.values())
        pause_s = 1 / self.options.get("rate", 20)
        due = time.monotonic()
        for number in itertools.count(1):
            # What an outage has cost is not made up for.
            due = max(due + pause_s, time.monotonic() - _BEHIND_S)
            if self.stopping.wait(max(0.0, due - time.monotonic())):
                return
            (kind,) = self.random.choices(names, weights)
            delay_s = self.random.uniform(0.3, 0.6) * self.lease_s if "later" in kind else 0.0
            yield Outgoing(f"{self.actor}:{number}:{kind}", delay_s)

    @contextmanager
    def sending(self, *messages: Outgoing, key: str = "") -> Iterator[None]:
        """Record the sends of *messages* in the block; errors of the product end there."""
        begun = [
            (each, self.recorder.begin("send", each.text, _detail(each, key))) for each in messages
        ]
        outcome, error = "unknown", ""
        try:
            yield
            outcome = "ok"
        except _UNKNOWN as caught:
            error = repr(caught)
        except TamboError as caught:
            outcome, error = "fail", repr(caught)
        finally:
            for message, operation in begun:
                self.recorder.end("send", outcome, message.text, operation, error)  # type: ignore[arg-type]

    async def handle(self, text: str, attempt: int) -> None:
        """Run the handler of a message, for the *attempt*-th time; it is recorded."""
        kind = text.rpartition(":")[2]
        operation, outcome = self.recorder.begin("run", text), "unknown"
        try:
            await asyncio.sleep(self._work_s(kind))
            if "doomed" in kind or ("flaky" in kind and attempt == 1):
                outcome = "fail"
                raise HandlerFailed(text)
            outcome = "ok"
        finally:
            self.recorder.end("run", outcome, text, operation)  # type: ignore[arg-type]

    def _work_s(self, kind: str) -> float:
        if "slow" in kind:
            return self.lease_s * self.random.uniform(1.2, 2.0)
        return self.random.uniform(0, self.options.get("work_s", _WORK_S))

    def watch_machine(self) -> None:
        """Record each time in which this process was not run; end it without its parent."""
        last, parent = time.monotonic(), os.getppid()
        while not self.stopping.wait(_LOOK_EVERY_S):
            if os.getppid() != parent:
                os._exit(1)
            now = time.monotonic()
            if now - last > _LOOK_EVERY_S + self.lease_s * STARVED_SHARE:
                self.recorder.note_fault(self.actor, "starved", last)
            last = now


def _detail(message: Outgoing, key: str) -> str:
    return f"due={time.monotonic() + message.delay_s}" if message.delay_s else key


def _fork(for_s: float) -> None:
    if os.fork() == 0:
        threading.Event().wait(for_s)
        os._exit(0)


def main(program: Callable[[RoleContext], None]) -> None:
    """Run *program* with the options of the command line; SIGTERM sets `RoleContext.stopping`."""
    context = RoleContext(json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: context.stopping.set())
    signal.signal(FORK, lambda *_: _fork(context.lease_s * FORKED_LEASES))
    threading.Thread(target=context.watch_machine, daemon=True).start()
    program(context)
