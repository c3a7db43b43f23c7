"""Broken builds of ChasquiMQ."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.build import Build, Trial, mixed
from tests.chaos.nemeses import NEMESES
from tests.chaos.subjects.chasqui import CHASQUI

_CUT: Final = Trial(CHASQUI, NEMESES["cut"])
_KILL: Final = Trial(CHASQUI, NEMESES["kill-worker"])
_KILL_SENDER: Final = Trial(CHASQUI, NEMESES["kill-sender"])
_SLOW: Final = Trial(CHASQUI, NEMESES["kill-sender"], options=mixed(slow=10), load="slow")
_DOOMED: Final = Trial(CHASQUI, NEMESES["kill-sender"], options=mixed(doomed=15), load="doomed")
_LATER: Final = Trial(CHASQUI, NEMESES["cut"], options=mixed(later=30), load="later")
# So seldom that each kill is judged: another one excuses that nobody takes over. The lease is
# longer than a worker needs to start, since one that starts looks at once.
_KILL_SELDOM: Final = Trial(
    CHASQUI,
    NEMESES["kill-worker"],
    seconds=20,
    lease_s=8,
    pause_s=12,
    # Few enough for one worker: one without room takes nothing over.
    options={"sender": {"rate": 4, "kinds": {"plain": 94, "slow": 6}}},
    load="seldom",
)
_STOP: Final = Trial(
    CHASQUI,
    NEMESES["stop-worker-long"],
    seconds=20,
    # Few enough for one worker: it must have taken over what the stopped one holds.
    options={"sender": {"rate": 3, "kinds": {"plain": 70, "slow+flaky": 30}}},
    load="slow+flaky",
)

CHASQUI_BUILDS: Final = (
    Build(
        "a stale consumer may settle",
        "chasqui/scripts/parts/is_owner.lua",
        "return not row.err and #row == 1",
        "return not row.err",
        _STOP,
        ("two at once",),
    ),
    Build(
        "a job is acknowledged when it is read",
        "chasqui/worker/fetcher.py",
        "        fresh = self._in_flight.add(deliveries)\n",
        "        fresh = self._in_flight.add(deliveries)\n"
        "        for each in fresh: await self._store.run("
        "worker_ops.abort(self._context, each.entry, '', '', ''))\n",
        _KILL,
        ("lost",),
    ),
    Build(
        "jobs of a dead worker are looked for every twenty seconds",
        "chasqui/worker/fetcher.py",
        "MAX_CLAIM_INTERVAL_S, CLAIMS_PER_LEASE = 1.0, 3",
        "MAX_CLAIM_INTERVAL_S, CLAIMS_PER_LEASE = 20.0, 0.1",
        _KILL_SELDOM,
        ("left alone",),
    ),
    Build(
        "a dead letter is acknowledged without being written",
        "chasqui/ops/scripts/bury.lua",
        "redis.call('XADD', dlq, '*', unpack(row))\n",
        "",
        _DOOMED,
        ("lost",),
    ),
    Build(
        "a failed job is acknowledged without being scheduled again",
        "chasqui/ops/scripts/retry.lua",
        "redis.call('ZADD', delayed, string.format('%.0f', run_at), member)\n",
        "",
        _CUT,
        ("lost",),
    ),
    Build(
        "jobs of the same id are added again",
        "chasqui/ops/scripts/add_once.lua",
        "if before then",
        "if false then",
        _KILL_SENDER,
        ("ran again", "two at once"),
    ),
    Build(
        "a job is recovered from a worker that is alive",
        "chasqui/ops/scripts/claim.lua",
        "ARGV[3], ARGV[4]",
        "'0', ARGV[4]",
        _SLOW,
        ("two at once",),
    ),
    Build(
        "a promotion removes jobs that are not due yet",
        "chasqui/ops/scripts/promote.lua",
        "'ZREMRANGEBYRANK', delayed, 0, #due - 1",
        "'ZREMRANGEBYRANK', delayed, 0, -1",
        _LATER,
        ("lost",),
    ),
    Build(
        "a delayed job is removed before it is added",
        "chasqui/ops/scripts/promote.lua",
        "      entry = redis.call('XADD', stream, '*', 'd', envelope, 'n', name)\n    end\n",
        "      entry = redis.call('XADD', stream, 'MAXLEN', '0', '*', 'd', envelope, 'n', name)\n"
        "    end\n",
        _CUT,
        ("lost",),
    ),
    Build(
        "a job has one run more than its budget",
        "chasqui/decisions.py",
        "    return policy.max_attempts if own is None else own\n",
        "    return (policy.max_attempts if own is None else own) + 1\n",
        _DOOMED,
        ("over budget",),
    ),
    Build(
        "a delayed job is due at once",
        "chasqui/ops/scripts/schedule.lua",
        "redis.call('ZADD', delayed, run_at, member)",
        "redis.call('ZADD', delayed, ts, member)",
        _LATER,
        ("early",),
    ),
    Build(
        "the jobs of a dead worker are forgotten with it",
        "chasqui/ops/scripts/prune_consumers.lua",
        "name ~= returned and pending == 0 and idle > idle_ms",
        "name ~= returned and idle > 0",
        _KILL,
        ("stuck",),
    ),
)
