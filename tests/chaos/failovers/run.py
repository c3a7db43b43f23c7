"""Failovers of a server that is sent to, one after another, in an order of the seed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import redis

from tambomq.chasqui.keys import Keys
from tambomq.rsmq import Rsmq
from tests.chaos.failovers.result import Failover, Result, Sent
from tests.chaos.failovers.sender import QUEUE, SENDERS, Orders, text_of
from tests.chaos.subjects.chasqui import texts_of_stream
from tests.chaos.subjects.rsmq import texts_of_queue
from tests.servers import eventually
from tests.servers.sentinel import Sentinels

KINDS: Final = {"kill": 3, "freeze": 1, "failover": 1}
"""SIGKILL, SIGSTOP and SENTINEL FAILOVER, and how often each is chosen."""
PROTOCOLS: Final = tuple(SENDERS)
_STORED: Final[dict[str, Callable[[Any], Iterator[str]]]] = {
    "rsmq": lambda db: texts_of_queue(db, QUEUE),
    "chasqui": lambda db: texts_of_stream(db, Keys(QUEUE).stream),
}
# A returning replica receives all data again: without a detour over its disk.
_LOADED_FROM_MEMORY: Final = ("--repl-diskless-load", "swapdb")
_END_WITHIN_S = 120.0
_FIRST_WITHIN_S = 30.0


def fail_over_often(
    count: int,
    *,
    rate: float,
    durable: str,
    seed: int,
    folder: Path,
    replicas: int = 1,
    protocols: Sequence[str] = PROTOCOLS,
    pause_s: float = 1.5,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Let *count* failovers happen while *rate* sends a second are begun; compare what is stored.

    Between them all servers are well for *pause_s* on average. *say* is told of each.
    """
    result = Result(durable, replicas, rate, seed)
    chosen = random.Random(seed)
    with Sentinels(*_LOADED_FROM_MEMORY, replicas=replicas) as servers, ExitStack() as stack:
        with Rsmq(servers.url) as rsmq:
            rsmq.create_queue(QUEUE)
        share, senders = rate / len(protocols), []
        for name in protocols:
            path = str(folder / f"{name}.confirmed")
            senders.append(_SenderProcess(Orders(name, servers.url, durable, share, path)))
            stack.callback(senders[-1].kill)
        for sender in senders:
            eventually(sender.has_confirmed, within_s=_FIRST_WITHIN_S)
        for _ in range(count):
            time.sleep(pause_s * chosen.uniform(0.5, 1.5))
            (kind,) = chosen.choices(list(KINDS), list(KINDS.values()))
            result.failovers.append(_fail_over(servers, kind))
            say(f"{kind}: promoted after {_seconds(result.failovers[-1])}")
        time.sleep(pause_s)
        result.load = os.getloadavg()
        result.sent = [sender.end() for sender in senders]
        _read_stored(servers, result.sent)
    return result


def _read_stored(servers: Sentinels, sent: Sequence[Sent]) -> None:
    with redis.Redis(port=servers.primary.port, protocol=2) as db:
        for each in sent:
            each.stored = Counter(_STORED[each.protocol](db))


def _fail_over(servers: Sentinels, kind: str) -> Failover:
    """Take the primary away, await another, and bring the old one back as a replica."""
    began = time.monotonic()
    if kind == "failover":
        servers.failover()
        promoted = time.monotonic()
    else:
        take = servers.kill_primary if kind == "kill" else servers.freeze_primary
        old = take()
        servers.wait_promoted()
        promoted = time.monotonic()
        if kind == "kill":
            servers.rejoin(old)
        else:
            servers.resume(old)
    servers.wait_whole()
    return Failover(kind, began, promoted, time.monotonic())


def _seconds(failover: Failover) -> str:
    promoted, whole = failover.promoted - failover.began, failover.whole - failover.began
    return f"{promoted:.2f} s, whole after {whole:.2f} s"


class _SenderProcess:
    """A sender as a process of its own."""

    def __init__(self, orders: Orders) -> None:
        self._orders, self._path = orders, Path(orders.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.failovers.sender", msgspec.json.encode(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def has_confirmed(self) -> bool:
        """Whether a send was confirmed: the file is written when its buffer is full."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the sender of {self._orders.protocol} ended by itself")
        return self._path.exists() and self._path.stat().st_size > 0

    def end(self) -> Sent:
        """Let it end, and return what it did."""
        output, _ = self._process.communicate(timeout=_END_WITHIN_S)
        sent = Sent(self._orders.protocol, **json.loads(output))
        for line in self._path.read_text().splitlines():
            when, number = line.split()
            sent.confirmed[text_of(sent.protocol, int(number))] = float(when)
        return sent

    def kill(self) -> None:
        """End it, if it still runs."""
        self._process.kill()
        self._process.communicate()
