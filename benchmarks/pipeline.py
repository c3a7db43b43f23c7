"""The pipeline: events into a lake, a queue into another, dead letters back into theirs.

No released program does these; the peer is the loop that one would write instead. That the cost
of the lake grows with the events, and no faster, is a limit of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import count
from typing import Any

from benchmarks import spark_data
from benchmarks.model import TIMES, Bout, Contender, Limit, Player, Ratio, Subject

BODY = "x" * 100
_serial = count()

OURS = Player("the pipeline", (sys.executable, "-m", "benchmarks.players.pipeline_jobs"))
LOOP = Player("a loop", (sys.executable, "-m", "benchmarks.players.pipeline_loop"))


def subject(rounds: int, *, quick: bool) -> Subject:
    """What is measured, with up to three turns of each; *quick* is a fifth of the work."""
    part, turns = 5 if quick else 1, min(rounds, 3)
    lake = Contender("lake", OURS, "lake", {"count": 400_000 // part})
    ours = Contender("migrate", OURS, "migrate", {"count": 100_000 // part})
    loop = Contender("loop", LOOP, "migrate", {"count": 2000 // part})
    redrive = Contender("redrive", OURS, "redrive", {"count": 100_000 // part})
    bouts = [
        Bout((lake,), turns, _events),
        Bout((ours, loop), turns, _messages),
        Bout((redrive,), turns, _letters),
    ]
    title = f"{lake.options['count']:,} events into bronze, silver and gold"
    rows: list[Ratio | Limit] = [
        Limit(title, lake, "rate", "/s"),
        Limit("the same, ÷ the time of a tenth of them", lake, "growth", TIMES, 11),
        Ratio("migrate RSMQ to ChasquiMQ ÷ a loop of receive, add, delete", ours, loop, 1),
        Limit(f"{redrive.options['count']:,} dead letters, chosen by SQL", redrive, "rate", "/s"),
        Limit("of these, only moved", redrive, "moved", "/s"),
    ]
    return Subject("pipeline", (OURS, LOOP), bouts, rows)


def _events(url: str, contender: Contender) -> Mapping[str, Any]:
    large, small = contender.options["count"], contender.options["count"] // 10
    queues = {"large": f"bench-{next(_serial)}", "small": f"bench-{next(_serial)}"}
    spark_data.events(url, queues["large"], large)
    spark_data.events(url, queues["small"], small)
    return queues


def _messages(url: str, contender: Contender) -> Mapping[str, Any]:
    queue = f"bench-{next(_serial)}"
    spark_data.messages(url, queue, contender.options["count"], BODY)
    return {"queue": queue}


def _letters(url: str, contender: Contender) -> Mapping[str, Any]:
    queue = f"bench-{next(_serial)}"
    spark_data.letters(url, queue, contender.options["count"], 94)
    return {"queue": queue}
