"""Broken builds of GOMQ and KqueueMsgQ."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.build import Build, Trial
from tests.chaos.builds.nemeses import kill_of, loss_of
from tests.chaos.nemeses import NEMESES
from tests.chaos.subjects.gomq import GOMQ
from tests.chaos.subjects.kqueue import KQUEUE

_FAST: Final = {"publisher": {"rate": 60}}
_KILL: Final = Trial(GOMQ, kill_of("consumer"), options=_FAST)
_LOSS: Final = Trial(GOMQ, loss_of("server", "request"), options=_FAST)
_PARTITION: Final = Trial(KQUEUE, NEMESES["partition-requests"], options={"producer": {"rate": 60}})

BROKER_BUILDS: Final = (
    Build(
        "a batch is not kept until it is acknowledged",
        "gomq/ops/scripts/observe_kept.lua",
        "    redis.call('SET', handed, cmsgpack.pack({batch, taken}))\n",
        "",
        _KILL,
        ("lost",),
    ),
    Build(
        "the next call acknowledges whatever batch there is",
        "gomq/ops/scripts/observe_kept.lua",
        "if old and old[1] ~= acked then",
        "if false then",
        _KILL,
        ("lost",),
    ),
    Build(
        "a publish is confirmed before it is stored",
        "gomq/server/dispatcher.py",
        "_settle(futures, pushed if isinstance(pushed, TamboError) else None)",
        "_settle(futures, None)",
        _LOSS,
        ("lost",),
    ),
    Build(
        "newer messages of a key are delivered before older ones",
        "gomq/ops/scripts/dispatch.lua",
        "redis.pcall('RPUSH', list, unpack(run))",
        "redis.pcall('LPUSH', list, unpack(run))",
        _KILL,
        ("out of order",),
    ),
    Build(
        "frames that are read at once are forwarded in another order",
        "kqueue/delivery.py",
        'b"".join(parts)) for target',
        'b"".join(parts[::-1])) for target',
        _PARTITION,
        ("out of order",),
    ),
)
