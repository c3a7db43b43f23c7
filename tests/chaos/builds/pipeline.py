"""Broken builds of what the pipeline promises exactly once."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.build import Build, Trial
from tests.chaos.builds.nemeses import kill_of, lost_replies_of
from tests.chaos.subjects.pipeline import LAKE_LOG, MOVES, SINK

_MOVE_LOSS: Final = Trial(
    MOVES,
    lost_replies_of("mover"),
    # With messages in each move, and no pause between two, replies to all of its calls are lost.
    options={
        "mover": {"every_s": 0},
        "sender": {"kinds": {"plain": 90, "later": 10}, "rate": 1000},
    },
    load="many",
)
_SINK_KILL: Final = Trial(SINK, kill_of("writer"))
_LOG_KILL: Final = Trial(LAKE_LOG, kill_of("committer"))

PIPELINE_BUILDS: Final = (
    Build(
        "messages are moved without a list of those in transit",
        "rsmq/bulk/scripts/move_take.lua",
        "  redis.call('RPUSH', transit, unpack(rows))\n",
        "",
        _MOVE_LOSS,
        ("lost",),
    ),
    Build(
        "a batch of a move is stored again when it is sent again",
        "rsmq/bulk/scripts/move_put.lua",
        "if tonumber(number) <= (tonumber(known[1]) or 0) then",
        "if false then",
        _MOVE_LOSS,
        ("delivered twice",),
    ),
    Build(
        "the token of a sink's chunk is not stored",
        "bulk/scripts/parts/fence.lua",
        "  redis.call('HSET', fence, token, digest)\n",
        "",
        _SINK_KILL,
        ("delivered twice",),
    ),
    Build(
        "a number of the lake's log is given twice",
        "pipeline/lake/files.py",
        "        os.link(made, path)\n",
        "        os.replace(made, path)\n",
        _LOG_KILL,
        ("lost",),
    ),
    Build(
        "entries of the lake's log are dropped under a commit",
        "pipeline/lake/log.py",
        "if number > whole.number or entry is None or entry.at_ms >= at_ms:",
        "if entry is None or entry.at_ms >= at_ms:",
        _LOG_KILL,
        ("lost", "crashed"),
    ),
)
