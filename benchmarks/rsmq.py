"""RSMQ benchmarks: our clients compared with PyRSMQ and npm's rsmq, and with a long queue.

One client: the blocking `Rsmq`, which is faster than `AsyncRsmq` when only one
operation is in flight. 16 in flight: `AsyncRsmq` on uvloop. Receive+delete are
two operations, by id. All send the same body of 100 bytes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from benchmarks.model import ROOT, Bout, Contender, Limit, Player, Ratio, Subject
from tambomq.rsmq import Rsmq

BODY = "x" * 100
_FILL = 5000
_DEEP = "bench-deep"
_PEERS = ROOT / "tests" / "peers"
_serial = count()

OURS = Player("tambomq", (sys.executable, "-m", "benchmarks.players.tambomq_rsmq"))
PYRSMQ = Player(
    "PyRSMQ",
    (_PEERS / "pyrsmq" / ".venv" / "bin" / "python", "-m", "benchmarks.players.pyrsmq"),
    needs=_PEERS / "pyrsmq" / ".venv" / ".stamp",
)
NPM = Player(
    "npm rsmq",
    (shutil.which("node") or "node", ROOT / "benchmarks" / "players" / "npm_rsmq.js"),
    env={"NODE_PATH": str(_PEERS / "npm_rsmq" / "node_modules")},
    needs=_PEERS / "npm_rsmq" / "node_modules" / ".stamp",
)


def _contender(name: str, player: Player, task: str, size: int, **more: Any) -> Contender:
    warm = more.pop("warm", max(100, size // 10))
    return Contender(name, player, task, {"count": size, "warm": warm, "body": BODY, **more})


def subject(rounds: int, *, quick: bool) -> Subject:
    """The measurements, with *rounds* rounds of each; *quick* is a tenth of the work."""
    part = 10 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (
        _one_client(rounds, part),
        _in_flight(rounds, part),
        _wake(part),
        _deep(min(rounds, 3), part),
    ):
        bouts += some_bouts
        rows += some_rows
    return Subject("rsmq", (OURS, PYRSMQ, NPM), bouts, rows)


def _one_client(rounds: int, part: int) -> tuple[Sequence[Bout], Sequence[Ratio | Limit]]:
    send = _contender("send", OURS, "send", 6000 // part)
    send_py = _contender("PyRSMQ send", PYRSMQ, "send", 1500 // part)
    send_npm = _contender("npm send", NPM, "send", 3000 // part)
    receive = _contender("receive+delete", OURS, "receive", 3500 // part)
    receive_py = _contender("PyRSMQ receive+delete", PYRSMQ, "receive", 1000 // part)
    receive_npm = _contender("npm receive+delete", NPM, "receive", 2000 // part)
    bulk = _contender("bulk send", OURS, "send_bulk", max(20_000 // part, 5000), warm=1000)
    rows = [
        Ratio("send, one client ÷ PyRSMQ", send, send_py, 5, 8),
        Ratio("receive+delete, one client ÷ PyRSMQ", receive, receive_py, 4.5, 7),
        Ratio("bulk send ÷ PyRSMQ loop", bulk, send_py, 50, 100),
        Ratio("send, one client ÷ npm rsmq", send, send_npm, 2.2, 4),
        Ratio("receive+delete, one client ÷ npm rsmq", receive, receive_npm, 2.2, 4),
    ]
    contenders = (send, send_py, bulk, send_npm, receive, receive_py, receive_npm)
    return [Bout(contenders, rounds, _fresh, _drop)], rows


def _in_flight(rounds: int, part: int) -> tuple[Sequence[Bout], Sequence[Ratio | Limit]]:
    def of(name: str, player: Player, task: str, size: int) -> Contender:
        # V8 compiles hot code for a second or so; a warm-up of this size is past that.
        return _contender(name, player, task, size // part, warm=size // 2 // part, flights=16)

    send = of("send 16 in flight", OURS, "send_async", 20_000)
    send_npm = of("npm send 16 in flight", NPM, "send", 20_000)
    receive = of("receive+delete 16 in flight", OURS, "receive_async", 10_000)
    receive_npm = of("npm receive+delete 16 in flight", NPM, "receive", 10_000)
    rows = [
        Ratio("send, 16 in flight ÷ npm rsmq", send, send_npm, 1.2, 2),
        Ratio("receive+delete, 16 in flight ÷ npm rsmq", receive, receive_npm, 1.2, 2),
    ]
    return [Bout((send, send_npm, receive, receive_npm), rounds, _fresh, _drop)], rows


def _wake(part: int) -> tuple[Sequence[Bout], Sequence[Ratio | Limit]]:
    wake = _contender("wake", OURS, "wake", max(500 // part, 100))
    rows = [
        Limit("a send wakes a waiting receiver, p50", wake, "p50", "ms"),
        Limit("a send wakes a waiting receiver, p99", wake, "p99", "ms", limit=50),
    ]
    return [Bout((wake,), 2, _fresh, _drop)], rows


def _deep(rounds: int, part: int) -> tuple[Sequence[Bout], Sequence[Ratio | Limit]]:
    stored = 1_000_000 // part
    shown = f"{stored:,}"
    size = max(3000 // part, 1000)
    send = _contender("send to a short queue", OURS, "send", size)
    send_deep = _contender("send to a long queue", OURS, "send", size, stored=stored)
    receive = _contender("receive from a short queue", OURS, "receive", size)
    receive_deep = _contender("receive from a long queue", OURS, "receive", size, stored=stored)
    worker = _contender("worker", OURS, "worker_memory", stored, stored=stored, last=True)
    rows: list[Ratio | Limit] = [
        Ratio(f"send, {shown} stored ÷ none", send_deep, send, 0.67),
        Ratio(f"receive+delete, {shown} stored ÷ few", receive_deep, receive, 0.67),
        Limit(f"worker's growth over {shown} messages", worker, "growth", "MB", limit=5),
        Limit(f"worker's rate over {shown} messages", worker, "rate", "/s"),
    ]
    bout = Bout((send, send_deep, receive, receive_deep), rounds, _fresh, _drop)
    return [bout, Bout((worker,), 1, _fresh, _drop)], rows


def _fresh(url: str, contender: Contender) -> Mapping[str, Any]:
    """A queue for one round, filled with the messages to receive; or the long queue."""
    with Rsmq(url) as rsmq:
        if stored := contender.options.get("stored"):
            if _DEEP not in rsmq.list_queues():
                rsmq.create_queue(_DEEP)
            _fill(rsmq, _DEEP, stored - rsmq.get_queue_attributes(_DEEP).msgs)
            return {"queue": _DEEP}
        queue = f"bench-{next(_serial)}"
        rsmq.create_queue(queue)
        if contender.task.startswith("receive"):
            _fill(rsmq, queue, contender.options["count"] + contender.options["warm"])
        return {"queue": queue}


def _fill(rsmq: Rsmq, queue: str, size: int) -> None:
    for first in range(0, size, _FILL):
        rsmq.send_messages(queue, [BODY] * min(_FILL, size - first))


def _drop(url: str, contender: Contender) -> None:
    with Rsmq(url) as rsmq:
        for queue in rsmq.list_queues():
            if queue.startswith("bench-") and (queue != _DEEP or "last" in contender.options):
                rsmq.delete_queue(queue)
