"""Spark: our formats beside the same work in one plain Python process.

Stream and batch reads end in Spark's ``noop`` sink, on two cores. A job has 94 bytes of data, a
message or a row to write 100.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

from benchmarks import spark_data
from benchmarks.model import Bout, Contender, Limit, Player, Ratio, Subject
from benchmarks.rsmq import PYRSMQ
from tambomq.chasqui.keys import Keys
from tambomq.gomq import keys as gomq_keys
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys

BODY = "x" * 100
_QUEUE, _LARGE = "bench-table", "bench-large"
_BATCHES = {20_000: 10, 100_000: 4, 500_000: 1}
"""How many batches of each size a tail is given."""
_COLUMNS = {"rsmq": "body", "chasqui": "payload", "gomq": "payload"}
_SINK_BOUNDS = {"rsmq": (5, 8), "chasqui": (3, 5), "gomq": (3, 5)}
_serial = count()

SPARK = Player("tambomq on Spark", (sys.executable, "-m", "benchmarks.players.spark_tables"))
PLAIN = Player("plain Python", (sys.executable, "-m", "benchmarks.players.spark_plain"))

Part: TypeAlias = tuple[Sequence[Bout], Sequence[Ratio | Limit]]


def subject(rounds: int, *, quick: bool) -> Subject:
    """What is measured, with *rounds* turns of each; *quick* is a fifth of the work.

    What Spark takes for each query is more than that then: quick floors say nothing here.
    """
    part = 5 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (
        _jobs(rounds, part),
        _messages(min(rounds, 3), part),
        _tails(min(rounds, 3), part),
        _leased(rounds, part),
        _sinks(rounds, part),
        _memory(part),
    ):
        bouts += some_bouts
        rows += some_rows
    return Subject("spark", (SPARK, PLAIN, PYRSMQ), bouts, rows)


def _spark(name: str, task: str, of: str, size: int, **options: Any) -> Contender:
    return Contender(name, SPARK, task, {"format": of, "count": size, "with": options})


def _plain(task: str, key: str, size: int) -> Contender:
    return Contender(task, PLAIN, task, {"key": key, "count": size})


def _beside(title: str, pandas: Contender, raw: Contender) -> list[Ratio | Limit]:
    return [
        Limit(f"{title} by redis-py → pandas", pandas, "rate", "/s"),
        Limit(f"{title} by hiredis, without DataFrames", raw, "rate", "/s"),
    ]


def _jobs(rounds: int, part: int) -> Part:
    size = 1_000_000 // part
    ours = _spark("jobs", "read", "chasqui", size, queue=_QUEUE)
    stream = Keys(_QUEUE).stream
    pandas, raw = _plain("read jobs", stream, size), _plain("raw jobs", stream, size)

    def fill(url: str, _: Contender) -> Mapping[str, Any]:
        spark_data.jobs(url, _QUEUE, size, 94)
        return {}

    rows: list[Ratio | Limit] = [
        Ratio("a stream of jobs, read once ÷ redis-py → pandas", ours, pandas, 3, 5),
        Limit("the same by hiredis, without DataFrames", raw, "rate", "/s"),
    ]
    return [Bout((ours, pandas, raw), rounds, fill)], rows


def _messages(rounds: int, part: int) -> Part:
    size = 300_000 // part
    ours = _spark("messages", "read", "rsmq", size, queue=_QUEUE)
    zset = RsmqKeys().of(_QUEUE)[0]
    pandas, raw = _plain("read messages", zset, size), _plain("raw messages", zset, size)

    def fill(url: str, _: Contender) -> Mapping[str, Any]:
        spark_data.messages(url, _QUEUE, size, BODY)
        return {}

    rows: list[Ratio | Limit] = [
        Ratio("messages of RSMQ, read once ÷ redis-py → pandas", ours, pandas, 2.5, 5),
        Limit("the same by hiredis, without DataFrames", raw, "rate", "/s"),
    ]
    return [Bout((ours, pandas, raw), rounds, fill)], rows


def _tails(rounds: int, part: int) -> Part:
    ours: list[Contender] = []
    rows: list[Ratio | Limit] = []
    for batch_rows, batches in _BATCHES.items():
        size = batch_rows * batches // part
        name, limit = f"tail {batch_rows}", str(batch_rows // part)
        queue = f"{_QUEUE}-{batch_rows}"
        options = {"queue": queue, "table": "events", "maxRowsPerBatch": limit}
        ours.append(_spark(name, "stream", "chasqui", size, **options))
        title = f"a tail of events, {batch_rows // part:,} rows a batch"
        rows.append(Limit(title, ours[-1], "rate", "/s"))
    size, queue = ours[-1].options["count"], ours[-1].options["with"]["queue"]
    events = Keys(queue).events
    pandas, raw = _plain("read events", events, size), _plain("raw events", events, size)

    def fill(url: str, contender: Contender) -> Mapping[str, Any]:
        own = contender.options.get("with", {}).get("queue", queue)
        spark_data.events(url, own, contender.options["count"])
        return {}

    rows += _beside("events, read once", pandas, raw)
    return [Bout((*ours, pandas, raw), rounds, fill)], rows


def _leased(rounds: int, part: int) -> Part:
    ours = _spark("leased", "stream", "rsmq", 100_000 // part, lease="bench")
    peer = Contender("PyRSMQ", PYRSMQ, "receive", {"count": 1000 // part, "warm": 100 // part})

    def fill(url: str, contender: Contender) -> Mapping[str, Any]:
        queue = f"bench-{next(_serial)}"
        size = contender.options["count"] + contender.options.get("warm", 0)
        spark_data.messages(url, queue, size, BODY)
        if "with" not in contender.options:
            return {"queue": queue}
        zset = RsmqKeys().of(queue)[0]
        return {"key": zset, "with": {**contender.options["with"], "queue": queue}}

    title = "a leased stream of RSMQ ÷ one PyRSMQ receive+delete loop"
    return [Bout((ours, peer), rounds, fill, _drop)], [Ratio(title, ours, peer, 15, 40)]


def _sinks(rounds: int, part: int) -> Part:
    bouts, rows = [], []
    for name, column in _COLUMNS.items():
        order = {"format": name, "body": BODY, "column": column}
        ours = Contender(name, SPARK, "write", {**order, "count": 400_000 // part})
        peer = Contender(f"plain {name}", PLAIN, "write", {**order, "count": 40_000 // part})
        bouts.append(Bout((ours, peer), rounds, _fresh, _drop))
        title = f"sink, {name} ÷ a pipeline of redis-py"
        rows.append(Ratio(title, ours, peer, *_SINK_BOUNDS[name]))
    return bouts, rows


def _fresh(url: str, contender: Contender) -> Mapping[str, Any]:
    """A queue of its own for one turn."""
    queue = f"bench-{next(_serial)}"
    if contender.options["format"] == "rsmq":
        spark_data.messages(url, queue, 0, BODY)
    key = {
        "rsmq": RsmqKeys().of(queue)[0],
        "chasqui": Keys(queue).stream,
        "gomq": gomq_keys.queue(queue),
    }[contender.options["format"]]
    return {"key": key, "with": {"queue": queue}}


def _drop(url: str, _: Contender) -> None:
    queues = [f"bench-{n}" for n in range(next(_serial))]
    with Rsmq(url) as rsmq:
        for queue in set(queues).intersection(rsmq.list_queues()):
            rsmq.delete_queue(queue)
    names = (key for queue in queues for key in (Keys(queue).stream, gomq_keys.queue(queue)))
    spark_data.drop(url, *names)


def _memory(part: int) -> Part:
    size = 1_000_000 // part
    ours = _spark("large", "read watched", "chasqui", size, queue=_LARGE)

    def fill(url: str, _: Contender) -> Mapping[str, Any]:
        spark_data.jobs(url, _LARGE, size, 1024)
        return {}

    def drop(url: str, _: Contender) -> None:
        spark_data.drop(url, Keys(_LARGE).stream)

    title = f"{size:,} jobs of 1 KiB, read once"
    rows: list[Ratio | Limit] = [
        Limit(f"{title}: the largest Python worker at its peak", ours, "largest", "MB", 300),
        Limit(title, ours, "rate", "/s"),
    ]
    return [Bout((ours,), 1, fill, drop)], rows
