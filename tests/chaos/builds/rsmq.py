"""Broken builds of RSMQ."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.build import Build, Trial, mixed
from tests.chaos.nemeses import NEMESES
from tests.chaos.subjects.rsmq import RSMQ

_CUT: Final = Trial(RSMQ, NEMESES["cut"])
_KILL: Final = Trial(RSMQ, NEMESES["kill-worker"])
_LOSS: Final = Trial(RSMQ, NEMESES["loss"])
_SLOW: Final = Trial(RSMQ, NEMESES["kill-sender"], options=mixed(slow=10), load="slow")
_DOOMED: Final = Trial(RSMQ, NEMESES["kill-sender"], options=mixed(doomed=15), load="doomed")
_LATER: Final = Trial(RSMQ, NEMESES["cut"], options=mixed(later=30), load="later")
_STOP: Final = Trial(
    RSMQ,
    NEMESES["stop-worker-long"],
    seconds=20,
    # Few enough for one worker: it must have taken over what the stopped one holds.
    options={"sender": {"rate": 3, "kinds": {"plain": 70, "slow+flaky": 30}}},
    load="slow+flaky",
)

RSMQ_BUILDS: Final = (
    Build(
        "nobody renews the lease of a message",
        "runtime/heartbeat.py",
        "            self._renewal.renew()\n",
        "            pass\n",
        _SLOW,
        ("two at once",),
    ),
    Build(
        "a message is acknowledged before its handler runs",
        "rsmq/ops/scripts/receive.lua",
        "  if #ids > 0 then\n    redis.call('ZADD', messages, unpack(scores))\n",
        "  if #ids > 0 then\n    redis.call('ZREM', messages, unpack(ids))\n",
        _KILL,
        ("lost",),
    ),
    Build(
        "a dead letter is removed from its queue without being written",
        "rsmq/ops/scripts/bury.lua",
        "redis.call('ZADD', dead_messages, now, id)\n",
        "",
        _DOOMED,
        ("lost",),
    ),
    Build(
        "a failed message is deleted instead of retried",
        "rsmq/worker/settler.py",
        "hide = settle_ops.hide(self._keys, self._queue, message.id, wait_s, "
        "receipt=message.receipt)",
        "hide = settle_ops.delete(self._keys, self._queue, message.id, receipt=message.receipt)",
        _CUT,
        ("lost",),
    ),
    Build(
        "a stale receipt makes a message visible again",
        "rsmq/ops/scripts/hide.lua",
        "(receipt == '' or receipt == current)",
        "true",
        _STOP,
        ("two at once",),
    ),
    Build(
        "a send whose connection broke counts as stored",
        "store/roundtrip.py",
        "            else:\n                self.outcomes[index] = ReplyLost(_BROKEN)",
        "            else:\n                self.outcomes[index] = 'stored'",
        _LOSS,
        ("lost",),
    ),
    Build(
        "a send is repeated although it may have been stored",
        "store/roundtrip.py",
        "if self._calls[index].repeatable:",
        "if True:",
        _LOSS,
        ("ran again", "two at once"),
    ),
    Build(
        "a delay is ignored",
        "rsmq/ops/scripts/send.lua",
        " + math.floor(wait * 1000 + 0.5)",
        "",
        _LATER,
        ("early",),
    ),
    Build(
        "a message that always fails is retried for ever",
        "rsmq/worker/worker.py",
        "max_receives = None if max_receives is None else check_count(max_receives)",
        "max_receives = None",
        _DOOMED,
        ("over budget",),
    ),
    Build(
        "a heartbeat hides messages for an hour",
        "rsmq/ops/scripts/hide.lua",
        "math.floor(vt * 1000 + 0.5)",
        "math.floor(vt * 1000 + 0.5) + 3600000",
        _KILL,
        ("stuck",),
    ),
)
